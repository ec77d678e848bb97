"""The services of the broker that a partition may use.

`TopicCoordinators` are the one call upwards: what an internal topic holds, such as groups, lives in
its partitions, and must learn of their roles. The broker registers each kind under its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidelog.core.topic_config import TopicConfig
from tidelog.core.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.hosted_replica import HostedReplica
    from tidelog.broker.replicas.isr_changes import IsrChanges
    from tidelog.broker.replicas.planned_appends import PlannedAppends
    from tidelog.broker.replicas.reassignment_meters import ReassignmentMeters
    from tidelog.broker.replicas.takeovers import Takeovers
    from tidelog.broker.replicas.throttles import ReplicationThrottles
    from tidelog.broker.services import Services


class TopicCoordinators(Protocol):
    """The coordinators of one internal topic, which act while this broker leads its partitions."""

    def role_taken(self, partition: HostedReplica, leader_epoch: int) -> None:
        """Take over a partition that this broker leads from now on."""

    def role_ended(self, partition: HostedReplica) -> None:
        """Give up a partition that this broker leads no longer."""

    def replica_gone(self, partition: HostedReplica) -> None:
        """Forget a partition that this broker hosts no longer."""


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
    #: The replica of a partition that is hosted here, None when there is none.
    hosted: Callable[[TopicPartition], HostedReplica | None]
    #: The configuration of a topic by name.
    topic_config: Callable[[str], TopicConfig]
    throttles: ReplicationThrottles
    reassignments: ReassignmentMeters
