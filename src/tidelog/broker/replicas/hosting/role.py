"""The roles of a hosted replica: none, follower, leader, behind one interface.

A `Partition` holds exactly one role object and replaces it when the role changes. The identity of
the object thus names the term: the time under one leader epoch. Callers ask the role and never
which one it is. A role that does not lead refuses operations of a leader (V37) and ignores news for
leaders. The decisions themselves are pure (`tidelog.replication`); `leader_role` runs the leader's,
`followed_partition` the follower's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from tidelog.broker.replicas.hosting.hosted_replica import ChangingRole
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.ports import Buffer
from tidelog.log.append_validation import note_refused
from tidelog.log.refused_batches import EarlierBatchRefusedError, SkippedBatchesError

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_replica import HostedReplica
    from tidelog.broker.replicas.hosting.late_appends import LateAppends
    from tidelog.broker.services import Services
    from tidelog.log.partition_log import AppendInfo, PartitionLog
    from tidelog.replication.follower import FollowerReplica
    from tidelog.replication.isr import IsrChange
    from tidelog.replication.leader import LeaderReplica
    from tidelog.replication.pending_reads import PendingReads
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState

#: Refusals after which an idempotent producer sends the same batch again.
_RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class Core(Protocol):
    """The pure state of a role."""

    @property
    def high_watermark(self) -> int:
        """The offset after the last record known as committed."""


class Role(ChangingRole, Protocol):
    """The behaviour of a replica under its present role; `Partition` alone makes and ends roles."""

    #: Whether the controller gave this role.
    is_assigned: ClassVar[bool]
    is_leader: ClassVar[bool]

    @property
    def core(self) -> Core:
        """The pure state of the role; the hot path reads the high watermark from it."""

    @property
    def leadership(self) -> LeaderReplica | None:
        """The leader's decisions; None unless the replica leads."""

    @property
    def followership(self) -> FollowerReplica | None:
        """The follower's decisions; None unless the replica follows."""

    @property
    def partition_epoch(self) -> int:
        """The newest partition epoch known, by command or by a response of the controller."""

    @property
    def low_watermark(self) -> int:
        """The least log start offset of all live replicas; -1 where it is not known."""

    @property
    def late(self) -> LateAppends | None:
        """Appends that wait for a check of their batch; the next leadership takes them over."""

    def append(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Plan an append (`Partition.append`)."""

    def log_grew(self) -> None:
        """Take over the end of the log, after appends were written."""

    def check_follower(self, replica_id: int, broker_epoch: int, asked_epoch: int) -> ErrorCode:
        """Return why a follower may not fetch (V63), NONE where it may."""

    def follower_fetched(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        is_synced: bool = False,
        reads: PendingReads | None = None,
    ) -> None:
        """Note that a follower has this log up to `fetch_offset` (V60), perhaps on disk (V69).

        `reads` are the reads for that follower's fetches (F5).
        """

    def delete_records_before(self, offset: int) -> int:
        """Let the log start at `offset` (`Partition.delete_records_before`)."""

    def examine(self) -> None:
        """Look for followers that fell behind or may join the ISR (V62)."""

    def log_start_moved(self) -> None:
        """Note that retention or a client has removed records."""

    def log_rolled(self) -> None:
        """Note that the log may have a new active segment (V61)."""

    def minimum_changed(self, min_insync_replicas: int) -> None:
        """Take over the present `min.insync.replicas` (V60, V64)."""

    def flush_policy_changed(self) -> None:
        """Take over the present `flush.before.ack` of the log (V69)."""

    def pending_reads_changed(self, is_enabled: bool) -> None:
        """Take over the present `follower.fetch.pending.reads.insync.enable` (F5)."""

    def brokers_changed(self) -> None:
        """Note that other brokers came or went."""

    def log_replaced(self, log: PartitionLog) -> None:
        """Use another log, with the same records, from now on (D11)."""

    def commanded(self, state: LeaderAndIsrPartitionState) -> None:
        """Obey a command of the leader epoch of this role; a repeated one resets nothing."""

    def end(self) -> None:
        """Release all waits on this role; the partition has left it already."""


class _NotLeading:
    """The behaviour of every replica that does not lead."""

    __slots__ = ("_log", "_services", "partition_epoch")

    is_leader: ClassVar[bool] = False
    low_watermark: ClassVar[int] = -1
    leadership: ClassVar[None] = None
    late: ClassVar[None] = None

    def __init__(self, services: Services, log: PartitionLog, partition_epoch: int) -> None:
        self._services = services
        self._log = log
        self.partition_epoch = partition_epoch

    def append(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Refuse, and expect the batch again: an idempotent producer sends it again (V38)."""
        error = self._not_leader()
        note_refusal(self._services, self._log, records, error)
        raise error

    def log_grew(self) -> None:
        """Do nothing: the follower's own decisions take account of it."""

    def check_follower(self, replica_id: int, broker_epoch: int, asked_epoch: int) -> ErrorCode:
        """Refuse every follower."""
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def follower_fetched(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        is_synced: bool = False,
        reads: PendingReads | None = None,
    ) -> None:
        """Count nothing."""

    def delete_records_before(self, offset: int) -> int:
        """Refuse."""
        raise self._not_leader()

    def examine(self) -> None:
        """Look at nothing."""

    def log_start_moved(self) -> None:
        """Change nothing."""

    def log_rolled(self) -> None:
        """Change nothing: no fetch waits here."""

    def minimum_changed(self, min_insync_replicas: int) -> None:
        """Change nothing."""

    def flush_policy_changed(self) -> None:
        """Change nothing: a followed partition reads the policy with each fetch."""

    def pending_reads_changed(self, is_enabled: bool) -> None:
        """Change nothing."""

    def brokers_changed(self) -> None:
        """Change nothing."""

    def commanded(self, state: LeaderAndIsrPartitionState) -> None:
        """Take over the partition epoch."""
        self.partition_epoch = state.partition_epoch

    @property
    def minimum(self) -> int:
        """1, the least: this replica commits nothing."""
        return 1

    def is_change_to_be_sent(self, change: IsrChange) -> bool:
        """Send none."""
        return False

    def is_change_wanted(self, change: IsrChange) -> bool:
        """Want none."""
        return False

    def change_sent(self, change: IsrChange) -> None:
        """Change nothing."""

    def change_unanswered(self, change: IsrChange, held_ms: int = 0) -> None:
        """Change nothing."""

    def change_accepted(
        self,
        change: IsrChange,
        isr: tuple[int, ...],
        leader_epoch: int,
        partition_epoch: int,
        has_eligible: bool = False,
    ) -> None:
        """Change nothing."""

    def change_refused(self, change: IsrChange, error: ErrorCode) -> None:
        """Change nothing."""

    def end(self) -> None:
        """Release nothing: no request waits on a replica that does not lead."""

    def log_replaced(self, log: PartitionLog) -> None:
        """Use another log, with the same records, from now on (D11)."""
        self._log = log

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self._services.broker_id} does not lead {self._log.topic_partition}",
        )


class NoRole(_NotLeading):
    """The role of a replica that serves nothing and follows no leader until a command (V44)."""

    __slots__ = ("former", "high_watermark")

    is_assigned: ClassVar[bool] = False
    followership: ClassVar[None] = None

    def __init__(
        self, services: Services, log: PartitionLog, partition_epoch: int, high_watermark: int
    ) -> None:
        super().__init__(services, log, partition_epoch)
        self.high_watermark = high_watermark
        #: The leadership that the next one is to continue, while appends of it end; else None.
        self.former: LeaderReplica | None = None

    @property
    def core(self) -> NoRole:
        """This object: a replica without a role decides nothing."""
        return self


class FollowerRole(_NotLeading):
    """One follower term; its fetcher drives the decisions (`followed_partition`)."""

    __slots__ = ("core",)

    is_assigned: ClassVar[bool] = True

    def __init__(self, partition: HostedReplica, services: Services, core: FollowerReplica) -> None:
        super().__init__(services, partition.log, core.partition_epoch)
        self.core = core

    @property
    def followership(self) -> FollowerReplica:
        """The decisions of this term."""
        return self.core

    def log_start_moved(self) -> None:
        """Report the log start to the decisions: the next fetch carries it (V67)."""
        self.core.log_start_moved(self._log.log_start_offset)


def note_refusal(
    services: Services, log: PartitionLog, records: Buffer, error: KafkaError | StorageError
) -> None:
    """Expect a batch again after a retriable refusal: none behind it may come first (V38)."""
    code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(error, EarlierBatchRefusedError):
        services.tracer.mark("produce_refused_behind_refused")
    elif code in _RETRIABLE:
        if isinstance(error, SkippedBatchesError):
            services.tracer.mark("produce_refused_before_skipped")
        note_refused(log.producers.refused, records, code, services.clock.monotonic_ms())
