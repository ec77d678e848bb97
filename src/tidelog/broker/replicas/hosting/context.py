"""The services of the broker that the role of a replica may use.

`TopicCoordinators` are those of an internal topic: the coordinators of groups, for instance, must
learn of the roles of its partitions. The broker registers them under their topic. `IsrChanges` is
the way of ISR changes to the controller, or into the state nodes (A12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidelog.core.topic_config import TopicConfig

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.hosting.partition import Partition, PlannedAppends
    from tidelog.broker.replicas.hosting.reassignment_meters import ReassignmentMeters
    from tidelog.broker.replicas.hosting.takeovers import Takeovers
    from tidelog.broker.replicas.hosting.throttles import ReplicationThrottles
    from tidelog.broker.services import Services
    from tidelog.replication.isr import IsrChange


class TopicCoordinators(Protocol):
    """The coordinators of one internal topic, which act while this broker leads its partitions."""

    def role_taken(self, partition: Partition, leader_epoch: int) -> None:
        """Take over a partition that this broker leads from now on."""

    def role_ended(self, partition: Partition) -> None:
        """Give up a partition that this broker leads no longer."""

    def replica_gone(self, partition: Partition) -> None:
        """Forget a partition that this broker hosts no longer."""


class IsrChanges(Protocol):
    """The queue of one broker; the role of the partition gets the outcome of each change."""

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Queue a change; it replaces one of the partition that was not sent (A8)."""

    def withdraw(self, partition: Partition) -> None:
        """Drop the unsent change of a partition."""

    def retry(self, partition: Partition, change: IsrChange, after_ms: int = 0) -> None:
        """Queue a change again after a pause of more than `after_ms`: its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """The services shared by all partitions of one broker."""

    services: Services
    appends: PlannedAppends
    alter_partition_manager: IsrChanges
    takeovers: Takeovers
    #: By internal topic.
    coordinators: Mapping[str, TopicCoordinators]
    events: ClusterEvents
    #: The configuration of a topic by name.
    topic_config: Callable[[str], TopicConfig]
    throttles: ReplicationThrottles
    reassignments: ReassignmentMeters
