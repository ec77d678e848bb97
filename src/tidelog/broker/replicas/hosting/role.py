"""The roles of a hosted replica: none, follower, and the base class of every role.

A `Partition` holds exactly one role object and replaces it when the role changes, so each role
object stands for one leader epoch. Callers use the role and never ask which role it is. A role that
does not lead refuses a leader's operations (V37) and ignores events for leaders. `LeaderRole`
overrides the operations and events of a leader. The pure decisions are in `tidelog.replication`.
`leader_role` carries out the decisions of the leader, and `followed_partition` the decisions of the
follower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.ports import Buffer
from tidelog.log.append_validation import note_refused
from tidelog.log.refused_batches import EarlierBatchRefusedError, SkippedBatchesError

if TYPE_CHECKING:
    from tidelog.broker.services import Services
    from tidelog.log.append_validation import Checked
    from tidelog.log.partition_log import AppendInfo, PartitionLog
    from tidelog.replication.follower import FollowerReplica
    from tidelog.replication.isr import IsrChange
    from tidelog.replication.leader import LeaderReplica
    from tidelog.replication.pending_reads import PendingReads
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState

#: Refusals after which an idempotent producer resends the same batch.
_RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class KnownOffset(NamedTuple):
    """The high watermark of a replica without a role."""

    high_watermark: int


class Role:
    """The behaviour of a replica in its current role; a role of this base class does not lead.

    Subclass `LeaderRole` leads. Only `Partition` and `RoleChanges` begin and end roles.
    """

    __slots__ = ("_log", "_partition_epoch", "_services")

    #: Whether the controller gave this role.
    is_assigned: ClassVar[bool] = True
    is_leader: ClassVar[bool] = False
    #: The object that decides for the leader; None unless the replica leads.
    leadership: LeaderReplica | None = None
    #: The object that decides for the follower; None unless the replica follows.
    followership: FollowerReplica | None = None
    #: Appends that wait until a thread has checked their batch (`late_appends`).
    waiting_appends: Sequence[object] = ()
    #: The object that decides for this role; the hot path reads the high watermark from it.
    core: LeaderReplica | FollowerReplica | KnownOffset

    def __init__(self, services: Services, log: PartitionLog, partition_epoch: int) -> None:
        self._services = services
        self._log = log
        self._partition_epoch = partition_epoch

    @property
    def partition_epoch(self) -> int:
        """The newest known partition epoch, from a command or a response of the controller."""
        return self._partition_epoch

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all live replicas; -1 if unknown."""
        return -1

    def append(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Plan an append as leader; `PlannedAppends` submits it when the read event ends.

        `now_ms` is wall-clock time. Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS
        for acks=-1 (V64), or a refusal of the log. A batch with large compressed content, and all
        later batches, are planned after `append` returns; the returned completion has their errors.
        After a retriable refusal the replica expects that an idempotent producer resends the batch
        (V38).
        """
        return self.plan(records, acks, now_ms, None)

    def plan(
        self, records: Buffer, acks: int, now_ms: int, checked: Checked | None
    ) -> Completion[AppendInfo]:
        """Plan an append like `append`; raise CostlyBatch if its batch must be checked first.

        `checked` is the result of the batch's check on a thread, None before the check.
        """
        error = self._not_leader()
        note_refusal(self._services, self._log, records, error)
        raise error

    def log_grew(self) -> None:
        """Note the log's new end, after the leader's appends were written."""

    def check_follower(self, replica_id: int, broker_epoch: int, asked_epoch: int) -> ErrorCode:
        """Return why a follower may not fetch (V63); NONE if it may."""
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
        """Note that a follower has this log up to `fetch_offset` (V60), perhaps on disk (V69).

        `reads` are the pending reads for the fetches of this follower (F5). The call has no effect
        for a follower that `check_follower` refuses.
        """

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start to `offset`, -1 for the high watermark; return the new start.

        Followers advance their log start when they fetch (V67). `low_watermark` shows the progress
        of the replicas, and `watchers.wait_for_low_watermark` reports when all replicas have
        advanced their log start. Raises KafkaError, and changes nothing, for one of these reasons:

        - NOT_LEADER_OR_FOLLOWER: this replica does not lead;
        - POLICY_VIOLATION: the topic's records must not be deleted;
        - OFFSET_OUT_OF_RANGE: the offset is above the high watermark.

        KIP-107 defines this operation.
        """
        raise self._not_leader()

    def examine(self) -> None:
        """Find followers that fell behind or may join the ISR (V62)."""

    def log_start_moved(self) -> None:
        """Note that the log start has advanced, by retention or a client's DeleteRecords."""

    def log_rolled(self) -> None:
        """Note that the log may have a new active segment (V61)."""

    def minimum_changed(self, min_insync_replicas: int) -> None:
        """Apply the current `min.insync.replicas` (V60, V64)."""

    def flush_policy_changed(self) -> None:
        """Apply the current `flush.before.ack`, which followers read with each fetch (V69)."""

    def pending_reads_changed(self, is_enabled: bool) -> None:
        """Apply the current `follower.fetch.pending.reads.insync.enable` (F5)."""

    def brokers_changed(self) -> None:
        """Note that live brokers have changed, so that other followers may join the ISR now."""

    def commanded(self, state: LeaderAndIsrPartitionState) -> None:
        """Execute another command of this role's leader epoch; a repeated one changes nothing."""
        self._partition_epoch = state.partition_epoch

    def change_sent(self, change: IsrChange) -> None:
        """Note that an ISR change is sent now; the caller has checked `core.is_to_be_sent`."""

    def change_unanswered(self, change: IsrChange, held_ms: int = 0) -> None:
        """Note that the request for an ISR change got no response that settles the change.

        `held_ms` is the longest time for which the controller holds the ISR change back (A11).
        """

    def change_accepted(
        self,
        change: IsrChange,
        isr: tuple[int, ...],
        leader_epoch: int,
        partition_epoch: int,
        has_eligible: bool = False,
    ) -> None:
        """Apply the state in the controller's response to an ISR change.

        `has_eligible` means that the partition has eligible leader replicas outside the ISR (E1).
        """

    def change_refused(self, change: IsrChange, error: ErrorCode) -> None:
        """Note that the controller refused the ISR change."""

    def end(self) -> None:
        """Respond to all requests that wait on this role, which the partition has replaced."""

    def log_replaced(self, log: PartitionLog) -> None:
        """Use another log with the same records from now on (D11)."""
        self._log = log

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self._services.broker_id} does not lead {self._log.topic_partition}",
        )


class NoRole(Role):
    """The role of a replica without a command: it serves nothing and follows no leader (V44)."""

    __slots__ = ("core", "former")

    is_assigned: ClassVar[bool] = False

    def __init__(
        self, services: Services, log: PartitionLog, partition_epoch: int, high_watermark: int
    ) -> None:
        super().__init__(services, log, partition_epoch)
        self.core: KnownOffset = KnownOffset(high_watermark)
        #: The former leadership, if this broker leads again as soon as no operation runs on the
        #: log; else None.
        self.former: LeaderReplica | None = None


class FollowerRole(Role):
    """A follower's role for one leader epoch; its fetcher uses it (`followed_partition`)."""

    __slots__ = ("core", "followership")

    def __init__(self, services: Services, log: PartitionLog, core: FollowerReplica) -> None:
        super().__init__(services, log, core.partition_epoch)
        self.core: FollowerReplica = core
        self.followership: FollowerReplica = core

    def log_start_moved(self) -> None:
        """Pass the log start to the role's decisions, because the next fetch carries it (V67)."""
        self.core.log_start_moved(self._log.log_start_offset)


def note_refusal(
    services: Services, log: PartitionLog, records: Buffer, error: KafkaError | StorageError
) -> None:
    """Expect that the producer resends a batch that got a retriable refusal (V38)."""
    code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(error, EarlierBatchRefusedError):
        services.tracer.mark("produce_refused_behind_refused")
    elif code in _RETRIABLE:
        if isinstance(error, SkippedBatchesError):
            services.tracer.mark("produce_refused_before_skipped")
        note_refused(log.producers.refused, records, code, services.clock.monotonic_ms())
