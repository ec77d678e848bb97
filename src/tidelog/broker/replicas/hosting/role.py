"""The roles of a hosted replica: none, follower, and their base, which does not lead.

A `Partition` holds exactly one role object and replaces it when the role changes. The identity of
the object thus names the term: the time under one leader epoch. Callers ask the role and never
which one it is. A role that does not lead refuses operations of a leader (V37) and ignores news for
leaders. `LeaderRole` overrides all of that. The decisions themselves are pure
(`tidelog.replication`); `leader_role` runs the leader's, `followed_partition` the follower's.
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

#: Refusals after which an idempotent producer sends the same batch again.
_RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class KnownOffset(NamedTuple):
    """What a replica without a role knows: it decides nothing."""

    high_watermark: int


class Role:
    """The behaviour of a replica under its present role; this one does not lead.

    `LeaderRole` leads. `Partition` and `RoleChanges` alone make and end roles.
    """

    __slots__ = ("_log", "_partition_epoch", "_services")

    #: Whether the controller gave this role.
    is_assigned: ClassVar[bool] = True
    is_leader: ClassVar[bool] = False
    #: The decisions of the leader; None unless the replica leads.
    leadership: LeaderReplica | None = None
    #: The decisions of the follower; None unless the replica follows.
    followership: FollowerReplica | None = None
    #: Appends that wait for a check of their batch (`late_appends`).
    waiting_appends: Sequence[object] = ()
    #: The decisions of the role; the hot path reads the high watermark from them.
    core: LeaderReplica | FollowerReplica | KnownOffset

    def __init__(self, services: Services, log: PartitionLog, partition_epoch: int) -> None:
        self._services = services
        self._log = log
        self._partition_epoch = partition_epoch

    @property
    def partition_epoch(self) -> int:
        """The newest partition epoch known, by command or by a response of the controller."""
        return self._partition_epoch

    @property
    def low_watermark(self) -> int:
        """The least log start offset of all live replicas; -1 where it is not known."""
        return -1

    def append(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Plan an append as leader; `PlannedAppends` submits it when the read event ends.

        `now_ms` is wall time. Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS for
        acks=-1 (V64), or a refusal of the log. A batch that is large inside is planned later, and
        so are the batches behind it: then the completion carries such an error. After a retriable
        refusal the replica expects the batch again: an idempotent producer resends it (V38).
        """
        return self.plan(records, acks, now_ms, None)

    def plan(
        self, records: Buffer, acks: int, now_ms: int, checked: Checked | None
    ) -> Completion[AppendInfo]:
        """Plan an append like `append`; raises CostlyBatch where its batch is to be checked first.

        `checked` is the result of that check, None before it.
        """
        error = self._not_leader()
        note_refusal(self._services, self._log, records, error)
        raise error

    def log_grew(self) -> None:
        """Take over the end of the log, after appends of the leader were written."""

    def check_follower(self, replica_id: int, broker_epoch: int, asked_epoch: int) -> ErrorCode:
        """Return why a follower may not fetch (V63), NONE where it may."""
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

        `reads` are the reads for that follower's fetches (F5). A follower that does not count
        changes nothing; `check_follower` says why.
        """

    def delete_records_before(self, offset: int) -> int:
        """Let the log start at `offset`, -1 for the high watermark; return that offset.

        Other replicas follow by their fetches (V67): `low_watermark` says how far they are, and
        `watchers.wait_for_low_watermark` reports when all are there. Raises KafkaError, with
        nothing changed:

        - NOT_LEADER_OR_FOLLOWER;
        - POLICY_VIOLATION for a topic whose records must not be deleted;
        - OFFSET_OUT_OF_RANGE above the high watermark.

        Source: KIP-107.
        """
        raise self._not_leader()

    def examine(self) -> None:
        """Look for followers that fell behind or may join the ISR (V62)."""

    def log_start_moved(self) -> None:
        """Note that retention or a client has removed records."""

    def log_rolled(self) -> None:
        """Note that the log may have a new active segment (V61)."""

    def minimum_changed(self, min_insync_replicas: int) -> None:
        """Take over the present `min.insync.replicas` (V60, V64)."""

    def flush_policy_changed(self) -> None:
        """Take over the present `flush.before.ack`, which followers read with each fetch (V69)."""

    def pending_reads_changed(self, is_enabled: bool) -> None:
        """Take over the present `follower.fetch.pending.reads.insync.enable` (F5)."""

    def brokers_changed(self) -> None:
        """Note that other brokers came or went: others may join the ISR."""

    def commanded(self, state: LeaderAndIsrPartitionState) -> None:
        """Obey a command of the leader epoch of this role; a repeated one resets nothing."""
        self._partition_epoch = state.partition_epoch

    def change_sent(self, change: IsrChange) -> None:
        """Note that an ISR change of the leader is about to leave; only for one to be sent."""

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
        """Take over the state in the controller's response to the change."""

    def change_refused(self, change: IsrChange, error: ErrorCode) -> None:
        """Note that the controller refused the change."""

    def end(self) -> None:
        """Respond to all requests that wait on this role; the partition has left it already."""

    def log_replaced(self, log: PartitionLog) -> None:
        """Use another log, with the same records, from now on (D11)."""
        self._log = log

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self._services.broker_id} does not lead {self._log.topic_partition}",
        )


class NoRole(Role):
    """The role of a replica that serves nothing and follows no leader until a command (V44)."""

    __slots__ = ("core", "former")

    is_assigned: ClassVar[bool] = False

    def __init__(
        self, services: Services, log: PartitionLog, partition_epoch: int, high_watermark: int
    ) -> None:
        super().__init__(services, log, partition_epoch)
        self.core: KnownOffset = KnownOffset(high_watermark)
        #: The leadership that the next one is to continue, while appends of it end; else None.
        self.former: LeaderReplica | None = None


class FollowerRole(Role):
    """One follower term; its fetcher drives the decisions (`followed_partition`)."""

    __slots__ = ("core", "followership")

    def __init__(self, services: Services, log: PartitionLog, core: FollowerReplica) -> None:
        super().__init__(services, log, core.partition_epoch)
        self.core: FollowerReplica = core
        self.followership: FollowerReplica = core

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
