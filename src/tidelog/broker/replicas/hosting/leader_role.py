"""The role of a leader: its appends, the progress of its followers, its ISR changes.

Each object stands for one leadership, with one leader epoch. `replication.leader` decides, and
`leader_effects` runs the effects. The role responds to all waiting requests when the leadership
ends (V38). This module implements the leader's side of V60, V64, V71 and KIP-107. `Partition`
decides when a leadership begins and ends; requests wait in `purgatory`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, ClassVar

from tidelog.broker.replicas.hosting import leader_effects, unclean_elections
from tidelog.broker.replicas.hosting.late_appends import LateAppends
from tidelog.broker.replicas.hosting.leader_syncs import LeaderSyncs
from tidelog.broker.replicas.hosting.log_bytes import bytes_from
from tidelog.broker.replicas.hosting.role import Role, note_refusal
from tidelog.broker.replicas.metrics import FAILED_ISR_UPDATES
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.limits import SKIPPED_BATCHES_AWAITED_MS
from tidelog.core.ports import Buffer
from tidelog.core.types import RECOVERING
from tidelog.log.append_validation import Checked, CostlyBatch
from tidelog.replication.effects import MOVED, Effects
from tidelog.replication.isr import IsrChange

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.context import PartitionContext
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.log.partition_log import AppendInfo, PartitionLog
    from tidelog.replication.leader import LeaderReplica
    from tidelog.replication.pending_reads import PendingReads
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState

#: The offset in a DeleteRecords request that means the high watermark.
TO_HIGH_WATERMARK = -1


def may_join(services: Services, idle: Collection[int]) -> Callable[[int], bool]:
    """Return a function that tests whether a follower is alive and not paused (R10).

    Only such a follower may join the ISR. Without this test, a follower whose broker is dead could
    join, because the leader still knows the progress that the follower reported before.
    """
    return lambda broker_id: services.view.is_alive(broker_id) and broker_id not in idle


class LeaderRole(Role):
    """One leadership of a hosted replica, under one leader epoch."""

    __slots__ = (
        "_active_segment", "_context", "_idle", "_partition", "_syncs", "_watchers", "core", "late",
        "leadership", "waiting_appends",
    )  # fmt: skip

    is_leader: ClassVar[bool] = True

    def __init__(
        self,
        partition: Partition,
        context: PartitionContext,
        core: LeaderReplica,
        late: LateAppends | None,
        idle: tuple[int, ...],
    ) -> None:
        """`late` are the waiting appends of the earlier leadership that this leadership continues.

        `idle` are the replicas whose copying is paused by their reassignment (R10).
        """
        super().__init__(context.services, partition.log, core.isr.partition_epoch)
        self._idle = idle
        self._partition = partition
        self._context = context
        self._watchers = partition.watchers
        #: Base offset of the segment to which the log appended last.
        self._active_segment = self._log.base_offsets[-1]
        self.core: LeaderReplica = core
        self.leadership: LeaderReplica = core
        self._syncs = LeaderSyncs(self._services, self._log, self._synced, self._sync_failed)
        self.late = late or LateAppends(self._services, partition)
        self.waiting_appends = self.late.waiting

    @property
    def partition_epoch(self) -> int:
        """The partition epoch of the committed ISR."""
        return self.core.isr.partition_epoch

    # begin and end of the leadership

    def begin(self, state: LeaderAndIsrPartitionState, latest_epoch: int) -> None:
        """Begin to lead; `latest_epoch` is the leader epoch of the last record, -1 for none."""
        context, partition, core = self._context, self._partition, self.core
        context.takeovers.begun(partition)
        self._await_skipped_batches()
        if state.leader_recovery_state == RECOVERING:
            unclean_elections.report(self._services, context.events, partition, core, latest_epoch)
        coordinators = context.coordinators.get(partition.topic_partition.topic)
        if coordinators is not None:
            coordinators.role_taken(partition, core.leader_epoch)
        self.examine()
        self._watchers.look_again()
        if core.flush_before_ack:
            self._syncs.start()

    def _await_skipped_batches(self) -> None:
        """Expect that producers resend batches which the former leader refused (V38).

        The leader expects none if the partition has no former leader, or during a leader recovery.
        """
        core, until_ms = self.core, 0
        is_first = core.epoch_start_offset == 0 and core.leader_epoch == 0
        if not is_first and not core.is_recovering:
            until_ms = self._services.clock.monotonic_ms() + SKIPPED_BATCHES_AWAITED_MS
        self._log.producers.refused.await_skipped(until_ms)

    def end(self) -> None:
        """Respond to all waiting requests, as the leadership is over (V38)."""
        context, partition = self._context, self._partition
        context.takeovers.ended(partition)
        partition.told_high_watermark = self.core.high_watermark
        coordinators = context.coordinators.get(partition.topic_partition.topic)
        if coordinators is not None:
            coordinators.role_ended(partition)
        partition.flush_appends()
        self._syncs.end()
        self.late.refuse()
        context.alter_partition_manager.withdraw(partition)
        if self._watchers.acks_waiting:
            self._services.tracer.mark("acks_waiting_at_lost_leadership")
        self._watchers.leadership_lost(partition.topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # appending

    def append(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Plan an append, or have its batch checked on a thread first (`Role.append`)."""
        if not self.waiting_appends:
            try:
                return self.plan(records, acks, now_ms, None)
            except CostlyBatch:
                pass
        completion = self.late.add(records, acks, now_ms)
        self._context.appends.add_late(self._partition)
        return completion

    def plan(
        self, records: Buffer, acks: int, now_ms: int, checked: Checked | None
    ) -> Completion[AppendInfo]:
        """Assign offsets to an append, or raise KafkaError, StorageError or CostlyBatch.

        After a retriable refusal the log expects that the producer resends the batch (V38).
        """
        core, partition = self.core, self._partition
        try:
            if partition.is_closing:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{partition.topic_partition} is being removed",
                )
            if acks == -1 and core.is_below_minimum:
                self._services.tracer.mark("produce_refused_at_small_isr")
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS, leader_effects.below_minimum(partition, core)
                )
            planned = self._log.plan_leader_append(records, core.leader_epoch, now_ms, checked)
        except (KafkaError, StorageError) as error:
            note_refusal(self._services, self._log, records, error)
            raise
        self._context.appends.add(partition, planned)
        return planned

    def log_grew(self) -> None:
        """Note the log's new end: followers may read further, and records may be committed."""
        log_end_offset = self._log.log_end_offset
        if log_end_offset != self.core.log_end_offset:
            effects = self.core.appended(log_end_offset, self._services.clock.monotonic_ms())
            self._watchers.log_end_moved()
            if effects:
                self.run(effects)
            if self.core.flush_before_ack:
                self._syncs.start()
            if self._log.base_offsets[-1] != self._active_segment:
                self.log_rolled()

    def log_rolled(self) -> None:
        """Wake fetches that wait for more records in a segment that is no longer active (V61)."""
        active = self._log.base_offsets[-1]
        if active != self._active_segment:
            self._active_segment = active
            self._watchers.look_again()

    def _synced(self, synced_offset: int) -> None:
        """Note that the log is synced up to an offset: commit records, acknowledge acks=1 (V69)."""
        self.log_grew()
        self.run(self.core.synced(synced_offset, self._services.clock.monotonic_ms()))
        self._watchers.synced(synced_offset)

    def _sync_failed(self, error: BaseException) -> None:
        """Fail the waiting acks=1 requests, because the leader could not sync their records."""
        self._watchers.sync_failed(f"{self._partition.topic_partition} cannot be synced: {error}")

    # followers

    def check_follower(self, replica_id: int, broker_epoch: int, asked_epoch: int) -> ErrorCode:
        """Return why a follower may not fetch (V63); NONE if it may.

        If the replica is not assigned, a request with a leader epoch gets UNKNOWN_LEADER_EPOCH,
        because this leader may be outdated. A request without a leader epoch (`asked_epoch` -1)
        gets NOT_LEADER_OR_FOLLOWER instead, because the follower may be outdated (as in Kafka's
        Partition.followerReplicaOrThrow).
        """
        known = self.core.followers.get(replica_id)
        if known is not None and broker_epoch >= known.broker_epoch:
            return ErrorCode.NONE  # the frequent case, which must not read the clock
        try:
            now_ms = self._services.clock.monotonic_ms()
            self.core.follower(replica_id, broker_epoch, now_ms)
        except KafkaError as error:
            return error.code if asked_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

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
        core = self.core
        if self._log.log_end_offset != core.log_end_offset:
            # The follower has already read a batch whose append the log has not reported yet,
            # because the append also syncs the log (flush.messages).
            self.log_grew()
        try:
            effects = core.fetched(
                replica_id, broker_epoch, fetch_offset, log_start_offset, now_ms, is_synced, reads
            )
        except KafkaError:
            return
        takeovers = self._context.takeovers
        if takeovers.watched:
            takeovers.fetched(self._partition, replica_id, now_ms)
        if effects is MOVED:
            self._watchers.high_watermark_moved(core.high_watermark)
        elif effects:
            self.run(effects)
        if self._watchers.deletions_wait:
            self._low_watermark_may_move()

    def examine(self) -> None:
        """Find followers that fell behind or may join the ISR (V62)."""
        core = self.core
        if core.max_lag_bytes >= 0:
            for follower in core.followers.values():
                follower.bytes_behind = bytes_from(self._log, follower.log_end_offset)
        self.run(core.examine(self._services.clock.monotonic_ms()))

    def brokers_changed(self) -> None:
        """Note that live brokers have changed, so that other followers may join the ISR now."""
        now_ms = self._services.clock.monotonic_ms()
        self.run(self.core.eligibility_changed(may_join(self._services, self._idle), now_ms))
        self._low_watermark_may_move()

    # deleting records

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start to `offset` (`Role.delete_records_before`)."""
        log = self._log
        if not log.config.delete_enabled:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {log.topic_partition} cannot be deleted: its cleanup.policy has no "
                "delete",
            )
        high_watermark = self.core.high_watermark
        wanted = high_watermark if offset == TO_HIGH_WATERMARK else offset
        if not 0 <= wanted <= high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{log.topic_partition} cannot start at {offset}: its records are committed up to "
                f"{high_watermark}",
            )
        if log.advance_log_start(wanted):
            self._partition.log_start_moved()
        return wanted

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all live replicas; -1 if unknown."""
        return self.core.low_watermark(self._log.log_start_offset)

    def _low_watermark_may_move(self) -> None:
        if self._watchers.deletions_wait:
            self._watchers.low_watermark_is(self.low_watermark)

    # commands and configuration

    def log_replaced(self, log: PartitionLog) -> None:
        """Use another log with the same records from now on (D11)."""
        self._log = log
        self._active_segment = log.base_offsets[-1]
        self._syncs.log_replaced(log)

    def commanded(self, state: LeaderAndIsrPartitionState) -> None:
        """Execute another command of this leader epoch; a repeated command changes nothing."""
        core, tracer = self.core, self._services.tracer
        if state.partition_epoch == core.isr.partition_epoch:
            tracer.mark("command_repeated")
        elif core.isr.in_flight:
            tracer.mark("isr_change_void_by_command")
        idle, self._idle = self._idle, tuple(state.idle)
        before = core.isr.committed
        replicas = core.replicas
        self.run(
            core.commanded(
                tuple(state.isr),
                tuple(state.replicas),
                state.partition_epoch,
                may_join(self._services, self._idle),
                self._services.clock.monotonic_ms(),
                state.leader_recovery_state,
                bool(state.eligible),
            )
        )
        leader_effects.count_change(self._services.metrics, before, core.isr.committed)
        if idle != self._idle:
            self.brokers_changed()
        if core.replicas != replicas:
            self._watchers.assignment_changed()
        self._low_watermark_may_move()

    def minimum_changed(self, min_insync_replicas: int) -> None:
        """Apply the current `min.insync.replicas` (V60, V64)."""
        if self.core.min_insync_replicas != min_insync_replicas:
            now_ms = self._services.clock.monotonic_ms()
            self.run(self.core.minimum_changed(min_insync_replicas, now_ms))

    def flush_policy_changed(self) -> None:
        """Apply the current `flush.before.ack` (V69)."""
        core, is_on = self.core, self._log.config.flush_before_ack
        if core.flush_before_ack == is_on:
            return
        now_ms = self._services.clock.monotonic_ms()
        if is_on:
            synced_offset = min(self._syncs.synced_offset, core.log_end_offset)
            self.run(core.synced(synced_offset, now_ms))
        self.run(core.flush_before_ack_changed(is_on, now_ms))
        if is_on:
            self._syncs.start()
        else:
            self._watchers.synced(self._log.next_offset)

    def pending_reads_changed(self, is_enabled: bool) -> None:
        """Apply the current `follower.fetch.pending.reads.insync.enable` (F5)."""
        if self.core.counts_pending_reads != is_enabled:
            self.core.pending_reads_changed(is_enabled)

    # changes of the ISR

    def change_sent(self, change: IsrChange) -> None:
        """Note that an ISR change is sent now; the caller has checked `core.is_to_be_sent`."""
        if self.core.isr.in_flight and change == self.core.isr.queued:
            leader_effects.note_supersession(self._services.tracer, self._partition, self.core)
        self.core.change_sent(change)

    def change_unanswered(self, change: IsrChange, held_ms: int = 0) -> None:
        """Note that the request for an ISR change got no response that settles the change."""
        now_ms = self._services.clock.monotonic_ms()
        self.run(self.core.change_unanswered(change, now_ms, held_ms))

    def change_accepted(
        self,
        change: IsrChange,
        isr: tuple[int, ...],
        leader_epoch: int,
        partition_epoch: int,
        has_eligible: bool = False,
    ) -> None:
        """Apply the state in the controller's response to an ISR change."""
        now_ms = self._services.clock.monotonic_ms()
        before = self.core.isr.committed
        effects = self.core.change_accepted(
            change, isr, leader_epoch, partition_epoch, now_ms, has_eligible
        )
        leader_effects.count_change(self._services.metrics, before, self.core.isr.committed)
        if effects and change.shrinks:
            leader_effects.log_shrinks(self._services.tracer, self._partition, self.core, change)
        self.run(effects)

    def change_refused(self, change: IsrChange, error: ErrorCode) -> None:
        """Note that the controller refused an ISR change."""
        self._services.metrics.add(FAILED_ISR_UPDATES)
        leader_effects.mark_refusal(self._services.tracer, self._partition, change, error)
        self.run(self.core.change_refused(change, error, self._services.clock.monotonic_ms()))

    def run(self, effects: Effects) -> None:
        """Run the effects of a decision, in order."""
        if effects:
            leader_effects.run(self._context, self._partition, self.core, effects)
