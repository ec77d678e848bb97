"""One hosted replica: its log, its role, and who waits on it.

Joins the pure decisions of `tidelog.replication` to the log and to the purgatory: asks the role
what to do, does it, tells the watchers. Roles change only while nothing is under way on the log
(`quiet`), so a role's log end offset is always that of its log. Holds the replica's side of V31,
V33, V36 to V38, V61 and V64; which commands are obeyed is decided in `replica_commands`, what a
follower does with an answer in `fetchers`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.broker.replicas import unclean_elections as unclean
from tidelog.broker.replicas.late_appends import LateAppends
from tidelog.broker.replicas.purgatory import PartitionWatchers
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, InvariantError, KafkaError, StorageError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.ports import Buffer
from tidelog.core.types import NO_EPOCH, NO_LEADER, RECOVERING, EpochEnd, TopicId
from tidelog.log.append_validation import Checked, CostlyBatch, note_refused
from tidelog.log.refused_batches import EarlierBatchRefusedError
from tidelog.replication import commands, truncation, watermark
from tidelog.replication.effects import (
    MOVED,
    Effects,
    HighWatermarkMoved,
    IsrBelowMinimum,
    IsrCommitted,
    RetryAlterPartition,
    SendAlterPartition,
    WithdrawAlterPartition,
)
from tidelog.replication.follower import FollowerReplica
from tidelog.replication.isr import IsrChange, IsrState
from tidelog.replication.leader import LeaderReplica, epoch_error

if TYPE_CHECKING:
    from tidelog.broker.replicas.context import PartitionContext
    from tidelog.log.config import LogConfig
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import AppendInfo, PartitionLog
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState


#: Refusals after which an idempotent producer sends the same batch again.
_PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
#: What DeleteRecords calls the high watermark.
TO_HIGH_WATERMARK = -1


class Partition:
    """A replica on this broker; without a role until the controller gives it one (V44)."""

    __slots__ = (
        "_appends",
        "_context",
        "_known_partition_epoch",
        "_late",
        "_pending",
        "_resting_high_watermark",
        "_services",
        "directory",
        "is_closing",
        "leader_epoch",
        "log",
        "role",
        "told_high_watermark",
        "topic_partition",
        "watchers",
    )

    def __init__(
        self,
        context: PartitionContext,
        directory: LogDirectory,
        log: PartitionLog,
        high_watermark: int,
    ) -> None:
        self._context = context
        self._services = context.services
        self.directory = directory
        self.log = log
        self.topic_partition = log.topic_partition
        self.role: LeaderReplica | FollowerReplica | None = None
        #: The leader epoch of the last command obeyed; kept when the role ends (V30).
        self.leader_epoch = NO_EPOCH
        self._known_partition_epoch = NO_EPOCH
        #: It is about to be removed: no more records are taken (V71).
        self.is_closing = False
        #: The high watermark while there is no role.
        self._resting_high_watermark = watermark.on_follower(
            high_watermark, log.log_start_offset, log.log_end_offset
        )
        #: The high watermark that a leader told last, in this life of the broker; -1: none did.
        self.told_high_watermark = -1
        self.watchers = PartitionWatchers()
        #: Appends of this read event, planned and not submitted.
        self._appends: list[Completion[AppendInfo]] = []
        self._late = LateAppends(log, self._plan, self.flush_appends)
        #: Operations on the log that are not done.
        self._pending: list[Completion[Any]] = []

    # what it is

    @property
    def topic_id(self) -> TopicId:
        """The id of the topic that the log belongs to."""
        return self.log.topic_id

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return type(self.role) is LeaderReplica

    @property
    def high_watermark(self) -> int:
        """The offset after the last record known as committed."""
        role = self.role
        return self._resting_high_watermark if role is None else role.high_watermark

    @property
    def partition_epoch(self) -> int:
        """The newest partition epoch known, by command or by an answer of the controller."""
        role = self.role
        if type(role) is LeaderReplica:
            return role.isr.partition_epoch
        return self._known_partition_epoch

    def has_topic_id(self, topic_id: TopicId) -> bool:
        """Whether a request that names `topic_id` means this replica's topic (V23, G4)."""
        return commands.topic_id_matches(self.log.topic_id, topic_id)

    def check_leader_epoch(self, asked_epoch: int) -> ErrorCode:
        """Whether this replica may answer as leader to whoever believes in `asked_epoch` (V37)."""
        error = epoch_error(self.leader_epoch, asked_epoch)
        if error or type(self.role) is LeaderReplica:
            return error
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def check_follower(self, replica_id: int, broker_epoch: int, asked_epoch: int) -> ErrorCode:
        """Why the leader gives a follower nothing (V63), NONE where it does.

        A follower that names no leader epoch may be the one that is behind, so it is not told that
        we are (as Kafka's Partition.followerReplicaOrThrow).
        """
        role = self.role
        if type(role) is not LeaderReplica:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            role.follower(replica_id, broker_epoch)
        except KafkaError as error:
            return error.code if asked_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
        """Where a follower's log parts from ours (V32); KafkaError OFFSET_OUT_OF_RANGE."""
        log = self.log
        return truncation.diverging_epoch(
            log.epochs, log.log_end_offset, last_fetched_epoch, fetch_offset
        )

    # leading

    def append(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Plan an append as leader; `flush_appends` writes it. `now_ms` is wall time.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS for acks=-1 (V64), or what
        the log refuses. Where a batch is large inside, it and those behind it are planned later:
        then such an error is the completion's.
        """
        if self._late:
            return self._late.add(records, acks, now_ms)
        try:
            return self._plan(records, acks, now_ms, None)
        except CostlyBatch:
            return self._late.add(records, acks, now_ms)

    def _plan(
        self, records: Buffer, acks: int, now_ms: int, checked: Checked | None
    ) -> Completion[AppendInfo]:
        """Raises CostlyBatch, too. A batch that is refused for the moment is awaited (V38)."""
        try:
            return self._plan_as_leader(records, acks, now_ms, checked)
        except (KafkaError, StorageError) as error:
            self._note_refusal(records, error)
            raise

    def _note_refusal(self, records: Buffer, error: KafkaError | StorageError) -> None:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(error, EarlierBatchRefusedError):
            self._services.tracer.mark("produce_refused_behind_refused")
        elif code in _PASSING:
            now_ms = self._services.clock.monotonic_ms()
            note_refused(self.log.producers.refused, records, code, now_ms)

    def _plan_as_leader(
        self, records: Buffer, acks: int, now_ms: int, checked: Checked | None
    ) -> Completion[AppendInfo]:
        role = self.role
        if type(role) is not LeaderReplica:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._services.broker_id} does not lead {self.topic_partition}",
            )
        if self.is_closing:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} is being removed"
            )
        if acks == -1 and role.is_below_minimum:
            self._services.tracer.mark("produce_refused_at_small_isr")
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, self._below_minimum(role))
        completion = self.log.plan_leader_append(records, role.leader_epoch, now_ms, checked)
        self._appends.append(completion)
        return completion

    def flush_appends(self) -> bool:
        """Submit what was planned; True when all that was appended is written already.

        The planned batches become readable together, and the high watermark is looked at once.
        """
        appends = self._appends
        self.log.submit_planned()
        # What waits for a check is not even planned, and its bytes are still to be read.
        all_done = not self._late
        if not appends:
            return all_done
        self._appends = []
        for completion in appends:
            if not completion.done:
                # Not the last one alone: a repeated batch is done with its original.
                completion.then(self._log_grew)
                self._track(completion)
                all_done = False
        self._log_grew()
        return all_done

    def _log_grew(self, _: Completion[AppendInfo] | None = None) -> None:
        role = self.role
        log_end_offset = self.log.log_end_offset
        if type(role) is LeaderReplica and log_end_offset != role.log_end_offset:
            effects = role.appended(log_end_offset, self._services.clock.monotonic_ms())
            self.watchers.log_end_moved(self)
            if effects:
                self.run(effects)

    def follower_fetched(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
    ) -> None:
        """A follower has our log up to `fetch_offset`. One that does not count changes nothing;
        why, `check_follower` tells."""
        role = self.role
        if type(role) is not LeaderReplica:
            return
        if self.log.log_end_offset != role.log_end_offset:
            # Written, and read by the follower, before the append is answered (flush.messages).
            self._log_grew()
        try:
            effects = role.fetched(replica_id, broker_epoch, fetch_offset, log_start_offset, now_ms)
        except KafkaError:
            return
        if self._context.takeovers.watched:
            self._context.takeovers.fetched(self, replica_id, now_ms)
        if effects is MOVED:
            self.watchers.high_watermark_moved(self)
        elif effects:
            self.run(effects)
        if self.watchers.deletions_wait:
            self._look_at_low_watermark()

    def delete_records_before(self, offset: int) -> int:
        """Let the log start at `offset`, -1 for the high watermark; returns that offset.

        Other replicas follow by their fetches (V67): `low_watermark` tells how far they are, and
        `watchers.wait_for_low_watermark` when all are there. Raises KafkaError, with nothing
        changed: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION for a topic whose records are not to be
        deleted, OFFSET_OUT_OF_RANGE above the high watermark. Source: KIP-107.
        """
        role = self.role
        if type(role) is not LeaderReplica:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._services.broker_id} does not lead {self.topic_partition}",
            )
        if not self.log.config.delete_enabled:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self.topic_partition} cannot be deleted: its cleanup.policy has no "
                "delete",
            )
        high_watermark = role.high_watermark
        wanted = high_watermark if offset == TO_HIGH_WATERMARK else offset
        if not 0 <= wanted <= high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} cannot start at {offset}: its records are committed up to "
                f"{high_watermark}",
            )
        if self.log.advance_log_start(wanted):
            self.log_start_moved()
        return wanted

    @property
    def low_watermark(self) -> int:
        """The least log start offset of all live replicas, -1 where it is not known or this broker
        does not lead."""
        role = self.role
        if type(role) is not LeaderReplica:
            return -1
        return role.low_watermark(self.log.log_start_offset)

    def _look_at_low_watermark(self) -> None:
        if self.watchers.deletions_wait:
            self.watchers.low_watermark_is(self.low_watermark)

    def examine(self) -> None:
        """Look for followers that fell behind or may join (V62); nothing unless leading."""
        role = self.role
        if type(role) is LeaderReplica:
            if role.max_lag_bytes >= 0:
                for follower in role.followers.values():
                    follower.bytes_behind = bytes_from(self.log, follower.log_end_offset)
            self.run(role.examine(self._services.clock.monotonic_ms()))

    def log_start_moved(self) -> None:
        """Retention or a client has removed records."""
        role = self.role
        if type(role) is FollowerReplica:
            role.log_start_moved(self.log.log_start_offset)
        self.watchers.isr_or_log_start_changed(self)

    def configured(self, config: LogConfig, min_insync_replicas: int) -> None:
        """The topic's configuration may have changed (V60, V64)."""
        self.log.configured(config)
        role = self.role
        if type(role) is LeaderReplica and role.min_insync_replicas != min_insync_replicas:
            now_ms = self._services.clock.monotonic_ms()
            self.run(role.minimum_changed(min_insync_replicas, now_ms))

    def brokers_changed(self, is_alive: Callable[[int], bool]) -> None:
        """Other brokers came or went."""
        role = self.role
        if type(role) is LeaderReplica:
            self.run(role.eligibility_changed(is_alive, self._services.clock.monotonic_ms()))
            self._look_at_low_watermark()

    def is_change_wanted(self, change: IsrChange) -> bool:
        """Whether an ISR change is still to be sent, or its outcome awaited."""
        role = self.role
        return type(role) is LeaderReplica and role.is_wanted(change)

    def change_sent(self, change: IsrChange) -> None:
        """The change is about to leave; only for one that `is_change_wanted`."""
        role = self.role
        if type(role) is LeaderReplica and change == role.isr.queued:
            role.change_sent(change)

    def change_accepted(
        self, change: IsrChange, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        """The controller answered with the state that holds now."""
        role = self.role
        if type(role) is LeaderReplica:
            now_ms = self._services.clock.monotonic_ms()
            self.run(role.change_accepted(change, isr, leader_epoch, partition_epoch, now_ms))

    def change_refused(self, change: IsrChange, error: ErrorCode) -> None:
        """The controller refused the change."""
        role = self.role
        if type(role) is LeaderReplica:
            self._services.tracer.event(
                "isr_change_refused",
                partition=str(self.topic_partition),
                isr=change.isr,
                error=error.name,
            )
            self._mark_refusal(error)
            self.run(role.change_refused(change, error, self._services.clock.monotonic_ms()))

    def _mark_refusal(self, error: ErrorCode) -> None:
        if error is ErrorCode.INELIGIBLE_REPLICA:
            self._services.tracer.mark("isr_change_refused_ineligible")
        elif error is ErrorCode.FENCED_LEADER_EPOCH:
            self._services.tracer.mark("isr_change_refused_fenced")
        elif error is ErrorCode.INVALID_UPDATE_VERSION:
            self._services.tracer.mark("isr_change_refused_old_state")

    def run(self, effects: Effects) -> None:
        """Do what a leader's decision asks for, in order."""
        for effect in effects:
            kind = type(effect)
            if kind is HighWatermarkMoved:
                if self._context.takeovers.watched:
                    self._context.takeovers.committed(self)
                self.watchers.high_watermark_moved(self)
            elif kind is IsrCommitted:
                self._isr_committed()
            elif kind is IsrBelowMinimum:
                assert type(self.role) is LeaderReplica
                if self.watchers.acks_waiting:
                    self._services.tracer.mark("acks_waiting_at_small_isr")
                self.watchers.isr_below_minimum(self, self._below_minimum(self.role))
            elif isinstance(effect, SendAlterPartition):
                self._context.isr_changes.submit(self, effect.change)
            elif isinstance(effect, WithdrawAlterPartition):
                self._services.tracer.mark("isr_change_withdrawn")
                self._context.isr_changes.withdraw(self)
            elif isinstance(effect, RetryAlterPartition):
                self._context.isr_changes.retry(self, effect.change)
            else:
                raise InvariantError(f"{effect} is not an effect of a leader")

    def _isr_committed(self) -> None:
        role = self.role
        assert type(role) is LeaderReplica
        self._services.tracer.event(
            "isr_committed",
            partition=str(self.topic_partition),
            isr=role.isr.committed,
            partition_epoch=role.isr.partition_epoch,
        )
        self.watchers.isr_or_log_start_changed(self)

    def _below_minimum(self, role: LeaderReplica) -> str:
        isr = role.isr.committed
        return (
            f"the ISR of {self.topic_partition} is {list(isr)}: {len(isr)} in-sync replicas, "
            f"{role.minimum} are needed (min.insync.replicas={role.min_insync_replicas})"
        )

    # changing roles

    def rest(self) -> None:
        """End the role: serve nothing, follow nobody. Everything that waits is answered (V38)."""
        role, self.role = self.role, None
        if role is None:
            return
        self._resting_high_watermark = role.high_watermark
        if type(role) is LeaderReplica:
            self._known_partition_epoch = role.isr.partition_epoch
            self._context.takeovers.ended(self)
            self.told_high_watermark = role.high_watermark
            if self.topic_partition.topic == CONSUMER_OFFSETS:
                self._context.coordinators.role_ended(self)
            self.flush_appends()
            self._late.refuse(self._note_refusal)
            self._context.isr_changes.withdraw(self)
            if self.watchers.acks_waiting:
                self._services.tracer.mark("acks_waiting_at_lost_leadership")
            self.watchers.leadership_lost(self, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def is_quiet(self) -> bool:
        """Whether nothing is under way on the log, planned appends written."""
        self.flush_appends()
        return all(completion.done for completion in self._pending)

    async def quiet(self) -> None:
        """Return when nothing is under way on the log."""
        while self._pending:
            completion = self._pending.pop()
            if not completion.done:
                self._services.tracer.mark("log_busy_at_role_change")
                waiter: Completion[None] = Completion()
                completion.then(lambda _, waiter=waiter: waiter.resolve(None))  # type: ignore[misc]
                await waiter

    def track(self, completion: Completion[Any]) -> None:
        """An operation on the log is under way: no role may be taken before it is done."""
        if not completion.done:
            self._track(completion)

    def _track(self, completion: Completion[Any]) -> None:
        if len(self._pending) > 8:
            self._pending = [one for one in self._pending if not one.done]
        self._pending.append(completion)

    def become_leader(self, state: LeaderAndIsrPartitionState) -> None:
        """Lead under a new leader epoch (V31); the log is quiet."""
        services, log = self._services, self.log
        log_end_offset = log.log_end_offset
        self._mark_election(log_end_offset, state)
        latest_epoch = log.epochs.latest_epoch
        if log.epochs.latest_epoch != state.leader_epoch:
            # Followers reconcile with this entry, even if no record of the epoch ever comes.
            log.assign_epoch(state.leader_epoch, log_end_offset)
        now_ms = services.clock.monotonic_ms()
        role = LeaderReplica(
            broker_id=services.broker_id,
            broker_epoch=services.broker_epoch,
            leader_epoch=state.leader_epoch,
            isr=IsrState(tuple(state.isr), state.partition_epoch),
            replicas=tuple(state.replicas),
            epoch_start_offset=log_end_offset,
            log_end_offset=log_end_offset,
            high_watermark=self._starting_high_watermark(),
            min_insync_replicas=self._context.topic_config(
                self.topic_partition.topic
            ).min_insync_replicas,
            max_lag_ms=services.config.replica_lag_time_max_ms,
            max_lag_bytes=services.config.replica_lag_max_bytes,
            is_eligible=services.view.is_alive,
            now_ms=now_ms,
            recovery_state=state.leader_recovery_state,
        )
        self._take_role(role, state, "became_leader")
        self._context.takeovers.begun(self)
        if state.leader_recovery_state == RECOVERING:
            unclean.tell(services, self._context.events, self, role, latest_epoch)
        if self.topic_partition.topic == CONSUMER_OFFSETS:
            self._context.coordinators.role_taken(self, role.leader_epoch)
        self.run(role.examine(now_ms))
        self.watchers.log_end_moved(self)

    def _mark_election(self, log_end_offset: int, state: LeaderAndIsrPartitionState) -> None:
        tracer, before = self._services.tracer, self.role
        if self.high_watermark < log_end_offset:
            tracer.mark("high_watermark_stale_at_election")
        if self.log.epochs.latest_start_offset == log_end_offset:
            tracer.mark("empty_epoch_at_election")
        if type(before) is LeaderReplica:
            tracer.mark("led_on_under_new_epoch")
            committed = before.isr.committed
            joining = any(len(one.isr) > len(committed) for one in before.isr.in_flight)
            if joining and len(state.isr) < len(committed):
                tracer.mark("isr_shrank_while_expand_in_flight")

    def become_follower(self, state: LeaderAndIsrPartitionState) -> FollowerReplica:
        """Follow under a new leader epoch (V32, V33); the log is quiet.

        Without a leader (-1) the replica waits for the next command.
        """
        log = self.log
        if state.leader == NO_LEADER:
            self._services.tracer.mark("follower_without_leader")
        role = FollowerReplica(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            latest_epoch=log.epochs.latest_epoch,
            high_watermark=self._starting_high_watermark(),
        )
        self._take_role(role, state, "became_follower")
        return role

    def recommanded(self, state: LeaderAndIsrPartitionState) -> None:
        """A command of the leader epoch that the role is of; a repeated one resets nothing."""
        self._known_partition_epoch = state.partition_epoch
        self.is_closing = state.is_closing
        role = self.role
        if type(role) is LeaderReplica:
            self._mark_command(role, state)
            now_ms = self._services.clock.monotonic_ms()
            self.run(
                role.commanded(
                    tuple(state.isr),
                    tuple(state.replicas),
                    state.partition_epoch,
                    self._services.view.is_alive,
                    now_ms,
                    state.leader_recovery_state,
                )
            )
            self._look_at_low_watermark()

    def _mark_command(self, role: LeaderReplica, state: LeaderAndIsrPartitionState) -> None:
        tracer, isr = self._services.tracer, role.isr
        if state.partition_epoch == isr.partition_epoch:
            tracer.mark("command_repeated")
        elif isr.in_flight:
            tracer.mark("isr_change_void_by_command")

    def _starting_high_watermark(self) -> int:
        log = self.log
        return watermark.on_follower(self.high_watermark, log.log_start_offset, log.log_end_offset)

    def _take_role(
        self,
        role: LeaderReplica | FollowerReplica,
        state: LeaderAndIsrPartitionState,
        event: str,
    ) -> None:
        self.role = role
        self.leader_epoch = state.leader_epoch
        self._known_partition_epoch = state.partition_epoch
        self.is_closing = state.is_closing
        tracer = self._services.tracer
        tracer.event(
            event,
            partition=str(self.topic_partition),
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=tuple(state.isr),
            log_end_offset=role.log_end_offset,
            high_watermark=role.high_watermark,
        )
        tracer.log(
            "state_change",
            logging.DEBUG,
            f"{event} of {self.topic_partition}: leader {state.leader} epoch "
            f"{state.leader_epoch}.{state.partition_epoch}, log end {role.log_end_offset}, "
            f"high watermark {role.high_watermark}",
        )


def bytes_from(log: PartitionLog, offset: int) -> int:
    """Bytes of the log from `offset` on, to within an index interval, 0 for an unknown offset.

    Of an older segment whose index is not in memory nothing is counted: what is known is enough
    to call a follower slow, and never too much.
    """
    if offset < 0 or offset >= log.log_end_offset:
        return 0
    total = 0
    for segment in reversed(log.segments):
        if segment.base_offset > offset:
            total += segment.size_bytes
            continue
        if segment.index is not None:
            total += segment.size_bytes - segment.index.floor(offset)
        break
    return total


def bytes_below(log: PartitionLog, offset: int) -> int:
    """Bytes of the log below `offset`, to within an index interval and never too many."""
    total = log.size_bytes
    if offset >= log.log_end_offset:
        return total
    for segment in reversed(log.segments):
        total -= segment.size_bytes
        if segment.base_offset < offset:
            if segment.index is not None:
                total += segment.index.floor(offset)
            break
    return total
