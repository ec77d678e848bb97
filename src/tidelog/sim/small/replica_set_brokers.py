"""One broker's replica in the small world: real decisions, and a list of records as log.

The class `SmallBroker` does what a broker does around the decisions of `tidelog.replication`: it
runs their effects, and checks fetches in the order of `broker.replicas.fetching.fetch_checks`. Like
a broker, it has at most one AlterPartition request in flight. An operation on the log (an append, a
truncation, a flush) is under way until a step of the history lets it succeed or fail.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_EPOCH, EpochEnd
from tidelog.replication import commands, leader, truncation, watermark
from tidelog.replication import isr as isr_rules
from tidelog.replication.effects import (
    AdvanceLogStart,
    Append,
    AskLogStart,
    BackOff,
    Effects,
    Flush,
    HighWatermarkMoved,
    IsrBelowMinimum,
    RetryAlterPartition,
    SendAlterPartition,
    TruncateFullyAndStartAt,
    TruncateTo,
    WithdrawAlterPartition,
)
from tidelog.replication.follower import FollowerReplica
from tidelog.replication.isr import IsrChange, IsrState
from tidelog.replication.leader import LeaderReplica
from tidelog.replication.pending_reads import PendingReads
from tidelog.sim.small.replica_set_values import (
    MAX_FETCHED,
    MAX_LAG_MS,
    ReplicaSetSettings,
    SmallCommand,
    SmallFetch,
    SmallRecord,
    SmallResponse,
)


class LogOperation(NamedTuple):
    """An operation that a follower waits for: a change of its log, or the request for the leader's
    log start.
    """

    kind: str
    offset: int = 0
    records: tuple[SmallRecord, ...] = ()


class SmallBroker:
    """One broker of the small world, with its replica of the only partition."""

    __slots__ = (
        "awaited",
        "broker_epoch",
        "broker_id",
        "checkpoint",
        "damaged_from",
        "durable",
        "epochs",
        "flushes",
        "inbox",
        "is_backing_off",
        "is_clean",
        "is_up",
        "known",
        "log",
        "log_start",
        "operation",
        "queue",
        "resting",
        "role",
        "settings",
        "shown_high_watermark",
        "view",
    )

    def __init__(self, broker_id: int, broker_epoch: int, settings: ReplicaSetSettings) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.settings = settings
        self.is_up = True
        #: Whether the broker's last shutdown was clean.
        self.is_clean = True
        #: The records of the replica's log by offset; records below `log_start` are deleted.
        self.log: list[SmallRecord] = []
        self.log_start = 0
        self.epochs = LeaderEpochs()
        #: Offset below which the log survives a power loss, because it was synced.
        self.durable = 0
        #: Offset of the first damaged record, None without damage (V68).
        self.damaged_from: int | None = None
        #: `flush.before.ack`, which brokers learn at different times.
        self.flushes = settings.flush_before_ack
        self.role: LeaderReplica | FollowerReplica | None = None
        #: Leader epoch and partition epoch of the last LeaderAndIsr command that the broker
        #: executed.
        self.known = (-1, -1)
        #: The high watermark of the replica while it has no role. `checkpoint` is the high
        #: watermark that was last written to disk.
        self.resting = 0
        self.checkpoint = 0
        #: The high watermark up to which the leader has responded to waiting requests.
        self.shown_high_watermark = 0
        #: LeaderAndIsr commands that the controller has sent and that have not arrived yet.
        self.inbox: list[SmallCommand] = []
        #: The brokers that this broker believes to be alive.
        self.view: frozenset[int] = frozenset(settings.replicas)
        self.operation: LogOperation | None = None
        self.is_backing_off = False
        #: The leader's ISR change that waits to be sent. `awaited` is the change whose request is
        #: in flight, with the number of the request.
        self.queue: IsrChange | None = None
        self.awaited: tuple[int, IsrChange] | None = None

    def copy(self, roles: dict[int, PendingReads]) -> SmallBroker:
        """Return an independent copy.

        `roles` gets the copy of each `PendingReads` by the `id()` of the original, because a leader
        and its connections share these objects.
        """
        other = SmallBroker.__new__(SmallBroker)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.log, other.inbox = self.log.copy(), self.inbox.copy()
        other.epochs = self.epochs.copy()
        other.role = None if self.role is None else self.role.copy()
        if isinstance(self.role, LeaderReplica) and isinstance(other.role, LeaderReplica):
            for number, progress in self.role.followers.items():
                copied = other.role.followers[number]
                for field in ("reads", "reads_shown"):
                    reads = getattr(progress, field)
                    if reads is not None:
                        setattr(copied, field, roles.setdefault(id(reads), reads.copy()))
        return other

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value."""
        role = self.role
        return (
            self.is_up,
            self.broker_epoch,
            tuple(self.log),
            self.log_start,
            tuple(self.epochs.entries()),
            (self.durable, self.damaged_from, self.flushes),
            None if role is None else (type(role) is LeaderReplica, role.key()),
            self.known,
            (self.resting, self.checkpoint),
            tuple(self.inbox),
            self.view,
            (self.operation, self.is_backing_off),
            (self.queue, self.awaited),
        )

    @property
    def leading(self) -> LeaderReplica | None:
        """The decisions of the leader; None if this broker does not lead."""
        return self.role if isinstance(self.role, LeaderReplica) else None

    @property
    def following(self) -> FollowerReplica | None:
        """The decisions of the follower; None if this broker does not follow."""
        return self.role if isinstance(self.role, FollowerReplica) else None

    @property
    def high_watermark(self) -> int:
        """The offset after the last record that this broker knows as committed."""
        return self.resting if self.role is None else self.role.high_watermark

    def is_eligible(self, broker_id: int) -> bool:
        """Return whether this broker believes that another one is alive."""
        return broker_id in self.view

    def __str__(self) -> str:
        records = " ".join(str(record) for record in self.log[self.log_start :])
        log = f"[{records}] from {self.log_start}, HW {self.high_watermark}"
        if not self.is_up:
            return f"is down, {log}"
        role, changes = self.role, ""
        if role is None:
            return f"of broker epoch {self.broker_epoch} has no role, {log}"
        if isinstance(role, FollowerReplica):
            return f"follows {role.leader} in leader epoch {role.leader_epoch}, {log}"
        for change in isr_rules.changes(role.isr):
            changes += f" or {list(change.isr)}"
        isr = f"{list(role.isr.committed)}{changes}"
        return f"leads in leader epoch {role.leader_epoch}, ISR {isr}, {log}"

    # roles

    def obey(self, command: SmallCommand, now_ms: int) -> bool:
        """Execute a LeaderAndIsr command; return False if a later command came first (V30, V31,
        V33).
        """
        if not commands.is_current(*self.known, command.leader_epoch, command.partition_epoch):
            return False
        self.known = (command.leader_epoch, command.partition_epoch)
        role = self.role
        if self.broker_id not in command.replicas:
            self.end_role()
            self.remove_log()
            return True
        if role is not None and role.leader_epoch == command.leader_epoch:
            if isinstance(role, LeaderReplica):
                effects = role.commanded(
                    command.isr,
                    command.replicas,
                    command.partition_epoch,
                    self.is_eligible,
                    now_ms,
                    has_eligible=bool(command.eligible),
                )
                self.run_leader(effects)
            return True
        former = self.leading
        self.end_role()
        if command.leader == self.broker_id:
            self._lead(command, former, now_ms)
        else:
            self._follow(command)
        return True

    def end_role(self) -> None:
        """End the replica's role; the replica neither leads nor follows until the next command."""
        self.resting = watermark.on_follower(self.high_watermark, self.log_start, len(self.log))
        self.role, self.queue, self.operation, self.is_backing_off = None, None, None, False

    def _lead(self, command: SmallCommand, former: LeaderReplica | None, now_ms: int) -> None:
        end = len(self.log)
        if self.epochs.latest_epoch != command.leader_epoch:
            self.epochs.assign(command.leader_epoch, end)
        settings = self.settings
        role = LeaderReplica(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            leader_epoch=command.leader_epoch,
            isr=IsrState(command.isr, command.partition_epoch),
            replicas=command.replicas,
            epoch_start_offset=end,
            log_end_offset=end,
            high_watermark=self.resting,
            min_insync_replicas=settings.leader_minimum,
            max_lag_ms=MAX_LAG_MS,
            max_lag_bytes=settings.max_lag_bytes,
            is_eligible=self.is_eligible,
            now_ms=now_ms,
            has_eligible=bool(command.eligible),
            flush_before_ack=self.flushes,
            synced_offset=min(self.durable, end),
            counts_pending_reads=settings.counts_pending_reads,
        )
        if former is not None:
            role.continues(former, now_ms)
        self.role, self.shown_high_watermark = role, role.high_watermark

    def _follow(self, command: SmallCommand) -> None:
        damaged_from = None
        if self.damaged_from is not None:
            members = (*command.isr, *command.eligible)
            damaged_from = truncation.before_damage(self.damaged_from, self.broker_id, members)
        role = FollowerReplica(
            leader=command.leader,
            leader_epoch=command.leader_epoch,
            partition_epoch=command.partition_epoch,
            log_start_offset=self.log_start,
            log_end_offset=len(self.log),
            latest_epoch=self.epochs.latest_epoch,
            high_watermark=self.resting,
            damaged_from=damaged_from,
        )
        self.role = role
        self.run_follower(role.begin(), ())

    # the leader

    def examine(self, now_ms: int) -> None:
        """Let the leader look for members that fell behind and followers that may join."""
        role = self.leading
        assert role is not None, "only a leader examines its followers"
        if role.max_lag_bytes >= 0:
            for follower in role.followers.values():
                follower.bytes_behind = len(self.log) - max(0, follower.log_end_offset)
        self.run_leader(role.examine(now_ms))

    def write(self, value: int, now_ms: int) -> None:
        """Let this leader append a client's record."""
        role = self.leading
        assert role is not None, "a client writes to a leader"
        self.append((SmallRecord(role.leader_epoch, value),))
        self.run_leader(role.appended(len(self.log), now_ms))

    def synced(self, now_ms: int) -> None:
        """Note that the log is on the disk, which a leader counts with `flush.before.ack` (V69)."""
        self.durable = len(self.log)
        if self.leading is not None and self.flushes:
            self.run_leader(self.leading.synced(self.durable, now_ms))

    def policy_changed(self, now_ms: int) -> None:
        """Learn the other value of `flush.before.ack` (V69)."""
        self.flushes = not self.flushes
        role = self.leading
        if role is not None:
            if self.flushes:
                self.run_leader(role.synced(self.durable, now_ms))
            self.run_leader(role.flush_before_ack_changed(self.flushes, now_ms))

    def run_leader(self, effects: Effects) -> None:
        """Run the effects of a leader's decision."""
        for effect in effects:
            match effect:
                case HighWatermarkMoved():
                    self.shown_high_watermark = self.high_watermark
                case SendAlterPartition():
                    self.queue = effect.change
                case RetryAlterPartition():
                    self.queue = self.queue or effect.change
                case WithdrawAlterPartition():
                    self.queue = None
                case IsrBelowMinimum():
                    self.shown_high_watermark = self.high_watermark

    def serve(
        self, fetch: SmallFetch, reads: PendingReads, now_ms: int
    ) -> tuple[SmallResponse, bool]:
        """Respond to a follower's fetch; also return whether its progress counts (V37, V60, V63).

        The order of the checks is that of `fetch_checks.readable`.
        """
        role, position = self.leading, fetch.position
        if role is None:
            return SmallResponse(position, ErrorCode.NOT_LEADER_OR_FOLLOWER), False
        error = leader.epoch_error(role.leader_epoch, position.leader_epoch)
        try:
            if not error:
                role.follower(fetch.replica_id, fetch.broker_epoch, now_ms)
        except KafkaError as refused:
            error = refused.code
        if error:
            role.fetch_refused(fetch.replica_id, now_ms)
            return SmallResponse(position, error), False
        offset, start = position.fetch_offset, self.log_start
        last_epoch = position.last_fetched_epoch
        if offset == fetch.log_start_offset == start:
            last_epoch = NO_EPOCH
        try:
            diverging = self._diverging(last_epoch, offset)
        except KafkaError as refused:
            return SmallResponse(position, refused.code), False
        if diverging is not None:
            return SmallResponse(position, 0, diverging, log_start_offset=start), False
        if not start <= offset <= len(self.log):
            return SmallResponse(position, ErrorCode.OFFSET_OUT_OF_RANGE), False
        effects = role.fetched(
            fetch.replica_id,
            fetch.broker_epoch,
            offset,
            fetch.log_start_offset,
            now_ms,
            fetch.is_synced,
            reads,
        )
        self.run_leader(effects)
        records = tuple(self.log[offset : offset + MAX_FETCHED])
        return SmallResponse(position, 0, None, records, role.high_watermark, start), True

    def _diverging(self, last_epoch: int, offset: int) -> EpochEnd | None:
        try:
            return truncation.diverging_epoch(self.epochs, len(self.log), last_epoch, offset)
        except KafkaError:
            end = truncation.below_log_start(self.epochs, self.log_start, last_epoch, offset)
            if end is None:
                raise
            return end

    # the follower

    def fetch(self) -> SmallFetch | None:
        """Return the next fetch of a follower, None while it must not fetch."""
        role = self.following
        if role is None or role.leader < 0 or role.is_busy:
            return None
        if self.operation is not None or self.is_backing_off:
            return None
        if self.flushes and self.durable < len(self.log):
            return None
        epoch = -1 if self.broker_id in self.settings.without_epochs else self.broker_epoch
        is_synced = self.flushes and self.durable >= role.position.fetch_offset
        return SmallFetch(self.broker_id, epoch, role.position, self.log_start, is_synced)

    def answered(self, response: SmallResponse) -> None:
        """Apply the leader's response to a fetch."""
        role = self.following
        if role is None:
            return
        effects = role.answered(
            response.position,
            response.error,
            response.diverging,
            self.epochs,
            response.high_watermark,
            response.log_start_offset,
            bool(response.records),
        )
        self.run_follower(effects, response.records)

    def run_follower(self, effects: Effects, records: tuple[SmallRecord, ...]) -> None:
        """Run the effects of a follower's decision; a later step ends the operation on the log."""
        for effect in effects:
            match effect:
                case Append():
                    self.operation = LogOperation("append", len(self.log), records)
                case Flush():
                    self.operation = LogOperation("flush")
                case TruncateTo():
                    self.operation = LogOperation("truncate", effect.offset)
                case TruncateFullyAndStartAt():
                    self.operation = LogOperation("restart", effect.offset)
                case AskLogStart():
                    self.operation = LogOperation("ask")
                case AdvanceLogStart():
                    self.advance_log_start(effect.offset)
                case BackOff():
                    self.is_backing_off = True

    def end_operation(self, leader_log_start: int | None) -> None:
        """Complete the follower's operation under way.

        `leader_log_start` is the leader's response if the follower asked for the leader's log
        start.
        """
        operation, role = self.operation, self.following
        assert operation is not None and role is not None, "a follower's operation is under way"
        self.operation = None
        if operation.kind == "ask":
            if leader_log_start is None:
                self.run_follower(role.failed(ErrorCode.NETWORK_EXCEPTION), ())
            else:
                self.run_follower(role.leader_log_starts_at(leader_log_start), ())
            return
        if operation.kind == "append":
            self.append(operation.records)
        elif operation.kind == "flush":
            self.durable = len(self.log)
        elif operation.kind == "truncate":
            self.truncate(operation.offset)
        else:
            self.restart_log(operation.offset)
        latest = self.epochs.latest_epoch
        if operation.kind in ("append", "flush"):
            self.run_follower(role.appended(len(self.log), latest), ())
        else:
            role.truncated(self.log_start, len(self.log), latest)

    def fail_operation(self, is_partly_done: bool) -> None:
        """Let the follower's operation under way fail, perhaps after a part of it was done."""
        operation, role = self.operation, self.following
        assert operation is not None and role is not None, "a follower's operation is under way"
        self.operation = None
        if is_partly_done and operation.kind == "append":
            self.append(operation.records)
        elif is_partly_done and operation.kind == "truncate":
            self.truncate((operation.offset + len(self.log) + 1) // 2)
        elif operation.kind == "append" and not is_partly_done:
            self.run_follower(role.not_appended(ErrorCode.KAFKA_STORAGE_ERROR), ())
            return
        self.run_follower(role.failed(ErrorCode.KAFKA_STORAGE_ERROR), ())

    def resume(self) -> None:
        """End the follower's pause after an error, so that it fetches again (V66)."""
        self.is_backing_off = False
        role = self.following
        if role is not None:
            latest = self.epochs.latest_epoch
            self.run_follower(role.resumed(self.log_start, len(self.log), latest), ())

    # the log

    def append(self, records: tuple[SmallRecord, ...]) -> None:
        """Add records at the end of the log."""
        for record in records:
            self.epochs.assign(record.leader_epoch, len(self.log))
            self.log.append(record)

    def truncate(self, offset: int) -> None:
        """Remove the records from an offset on."""
        del self.log[offset:]
        self.durable = min(self.durable, offset)
        self.epochs.truncate_from_end(offset)
        if self.damaged_from is not None and offset <= self.damaged_from:
            self.damaged_from = None

    def restart_log(self, offset: int) -> None:
        """Remove all records; the log begins again at an offset."""
        self.log = [DELETED] * offset
        self.log_start = self.durable = offset
        self.epochs.clear()
        self.damaged_from = None

    def remove_log(self) -> None:
        """Delete the replica, which is no longer assigned to this broker."""
        self.restart_log(0)
        self.resting = self.checkpoint = 0

    def advance_log_start(self, offset: int) -> None:
        """Delete the records below an offset."""
        self.log_start = max(self.log_start, offset)
        self.epochs.truncate_from_start(self.log_start)
        if self.damaged_from is not None and self.damaged_from < self.log_start:
            self.damaged_from = None

    def crash(self, log_end_offset: int) -> None:
        """Let the process die, and lose the log from `log_end_offset` on.

        The leader epochs are read again from the remaining records.
        """
        self.end_role()
        self.resting = min(self.checkpoint, log_end_offset)
        del self.log[log_end_offset:]
        if self.damaged_from is not None and log_end_offset <= self.damaged_from:
            self.damaged_from = None
        self.is_up, self.awaited, self.known = False, None, (-1, -1)
        self.durable = min(self.durable, log_end_offset)
        self.inbox.clear()
        self.epochs = LeaderEpochs()
        for offset in range(self.log_start, log_end_offset):
            self.epochs.assign(self.log[offset].leader_epoch, offset)


#: The entry of `SmallBroker.log` for each offset below the log start.
DELETED = SmallRecord(-1, -1)
