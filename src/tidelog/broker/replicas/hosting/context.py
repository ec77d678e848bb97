"""The services of the broker that the role of a replica may use.

`TopicCoordinators` are the coordinators of an internal topic, for example the topic of group
offsets. The coordinators must learn of the roles that replicas of their internal topic take. The
broker registers the coordinators under their topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from tidelog.core.dataclass import dataclass
from tidelog.core.topic_config import TopicConfig

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.hosting.isr_change_queue import IsrChangeQueue
    from tidelog.broker.replicas.hosting.partition import Partition, PlannedAppends
    from tidelog.broker.replicas.hosting.reassignment_meters import ReassignmentMeters
    from tidelog.broker.replicas.hosting.takeovers import Takeovers
    from tidelog.broker.replicas.hosting.throttles import ReplicationThrottles
    from tidelog.broker.services import Services


class TopicCoordinators(Protocol):
    """The coordinators of one internal topic, which act while this broker leads its partitions."""

    def role_taken(self, partition: Partition, leader_epoch: int) -> None:
        """Start to coordinate a partition whose leadership begins."""

    def role_ended(self, partition: Partition) -> None:
        """Stop coordinating a partition whose leadership has ended."""

    def replica_gone(self, partition: Partition) -> None:
        """Forget a partition whose replica this broker no longer hosts."""


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """The services that all partitions of one broker share."""

    services: Services
    appends: PlannedAppends
    alter_partition_manager: IsrChangeQueue
    takeovers: Takeovers
    #: Coordinators by the name of their internal topic.
    coordinators: Mapping[str, TopicCoordinators]
    events: ClusterEvents
    #: Returns the configuration of a topic by name.
    topic_config: Callable[[str], TopicConfig]
    throttles: ReplicationThrottles
    reassignments: ReassignmentMeters
