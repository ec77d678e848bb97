"""Views of a hosted replica for the parts of `Partition` and for the rooms above it.

`Partition` joins a log, a role and watchers; its parts may not know it in return. Each of them
takes the narrowest of these views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.replicas.hosting.purgatory import PartitionWatchers, WatchedReplica
from tidelog.core.completion import Completion
from tidelog.core.ports import Buffer

if TYPE_CHECKING:
    from tidelog.core.errors import ErrorCode
    from tidelog.core.types import TopicId, TopicPartition
    from tidelog.log.partition_log import AppendInfo, PartitionLog
    from tidelog.replication.isr import IsrChange
    from tidelog.replication.leader import LeaderReplica


class ChangingRole(Protocol):
    """The role of a replica whose leader proposed a change; other roles ignore the outcome."""

    @property
    def minimum(self) -> int:
        """The effective minimum by which the leader commits records (V60)."""

    def is_change_to_be_sent(self, change: IsrChange) -> bool:
        """Whether the next request is to carry the change."""

    def is_change_wanted(self, change: IsrChange) -> bool:
        """Whether the change still waits to be sent, or for an outcome."""

    def change_sent(self, change: IsrChange) -> None:
        """Note that the change is about to leave; only for one that `is_change_to_be_sent`."""

    def change_unanswered(self, change: IsrChange, held_ms: int = 0) -> None:
        """Note that the request for the change got no response that settles it.

        `held_ms`: the controller holds the change back for at most so long (A11).
        """

    def change_accepted(
        self,
        change: IsrChange,
        isr: tuple[int, ...],
        leader_epoch: int,
        partition_epoch: int,
        has_eligible: bool = False,
    ) -> None:
        """Take over the state in the controller's response."""

    def change_refused(self, change: IsrChange, error: ErrorCode) -> None:
        """Note that the controller rejected the change."""


class ChangingReplica(Protocol):
    """A replica whose leader proposes an ISR."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""

    @property
    def topic_id(self) -> TopicId:
        """The id of the topic."""

    @property
    def role(self) -> ChangingRole:
        """The present role."""


class HostedReplica(WatchedReplica, ChangingReplica, Protocol):
    """A replica of this broker: its names, its log, and its leadership if it leads."""

    log: PartitionLog
    watchers: PartitionWatchers
    #: The high watermark that a leader reported last since this broker started, this replica as
    #: leader included; -1 for none.
    told_high_watermark: int
    #: Whether the controller removes the partition: the leader takes no more records (V71).
    is_closing: bool

    @property
    def is_leader(self) -> bool:
        """Whether the replica leads."""

    @property
    def leadership(self) -> LeaderReplica | None:
        """The decisions of the leader; None unless the replica leads."""

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last command obeyed; kept when the role ends (V30)."""

    def append(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Append as leader; raises KafkaError and StorageError as `LeaderRole.append` does."""

    def log_start_moved(self) -> None:
        """Report that retention or DeleteRecords moved the start of the log."""

    def flush_appends(self) -> bool:
        """Submit the planned appends; return whether all of them are written."""

    def submit(self, completions: list[Completion[AppendInfo]]) -> bool:
        """Submit planned appends; return whether all of them are written."""
