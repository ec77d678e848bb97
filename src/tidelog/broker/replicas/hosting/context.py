"""The services of the broker that a partition may use.

Three of these services depend on partitions themselves. So a partition knows them only by
protocols, which state the methods that it calls. `TopicCoordinators` are the services of internal
topics: the coordinator of an internal topic, of groups for instance, must learn of the roles of its
partitions. The broker registers each coordinator under its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidelog.core.topic_config import TopicConfig
from tidelog.core.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.hosting.hosted_replica import HostedReplica
    from tidelog.broker.replicas.hosting.planned_appends import PlannedAppends
    from tidelog.broker.replicas.hosting.reassignment_meters import ReassignmentMeters
    from tidelog.broker.replicas.hosting.takeovers import Takeovers
    from tidelog.broker.services import Services
    from tidelog.replication.isr import IsrChange
    from tidelog.replication.throttle import SideThrottle
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState


class TopicCoordinators(Protocol):
    """The coordinators of one internal topic, which act while this broker leads its partitions."""

    def role_taken(self, partition: HostedReplica, leader_epoch: int) -> None:
        """Take over a partition that this broker leads from now on."""

    def role_ended(self, partition: HostedReplica) -> None:
        """Give up a partition that this broker leads no longer."""

    def replica_gone(self, partition: HostedReplica) -> None:
        """Forget a partition that this broker hosts no longer."""


class IsrChanges(Protocol):
    """The queue of one broker; the role of the partition gets the outcome of each change."""

    def __len__(self) -> int:
        """Return the number of changes that wait."""

    def submit(self, partition: HostedReplica, change: IsrChange) -> None:
        """Queue a change; it replaces one of the partition that was not sent (A8)."""

    def withdraw(self, partition: HostedReplica) -> None:
        """Drop the unsent change of a partition."""

    def retry(self, partition: HostedReplica, change: IsrChange, after_ms: int = 0) -> None:
        """Queue a change again after a pause of more than `after_ms`: its outcome is unknown."""

    def controller_changed(self) -> None:
        """Note that the view of the cluster may name another controller."""

    def close(self) -> None:
        """Queue and send nothing more."""


class RoleThrottle(Protocol):
    """Both sides of the replication throttle, to which roles report their reassignments (R15)."""

    leader: SideThrottle

    def role_taken(
        self, topic_partition: TopicPartition, state: LeaderAndIsrPartitionState
    ) -> bool:
        """Take what a role says of its partition's reassignment; return whether that is news."""

    def role_repeated(
        self, topic_partition: TopicPartition, state: LeaderAndIsrPartitionState
    ) -> None:
        """Take the same of a role of the present epoch; look at what waits where it differs."""


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
    throttles: RoleThrottle
    reassignments: ReassignmentMeters
