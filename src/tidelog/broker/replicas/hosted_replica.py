"""Views of a hosted replica for the parts of `Partition` and for the rooms above it.

`Partition` joins a log, a role and watchers; its parts may not know it in return. Each of them
takes the narrowest of these views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.replicas.alter_partition_manager import ChangingReplica
from tidelog.broker.replicas.purgatory import PartitionWatchers, WatchedReplica
from tidelog.core.completion import Completion
from tidelog.core.ports import Buffer

if TYPE_CHECKING:
    from tidelog.log.partition_log import AppendInfo, PartitionLog
    from tidelog.replication.leader import LeaderReplica


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
