"""One hosted replica: its log, its role, and the requests that wait on it.

A partition joins the pure decisions of `tidelog.replication` to the log and to the purgatory.
Callers ask the partition, or its role (`role`), and never which role it is. Roles change only while
the log is quiet (`quiet`), so a role's log end offset is always that of its log. This module holds
the replica's side of V31, V33, V36 to V38 and V61. `commands` decides which commands are obeyed;
`followed_partition` applies responses to a follower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.broker.replicas.hosting import role_traces
from tidelog.broker.replicas.hosting.leader_role import LeaderRole, may_join
from tidelog.broker.replicas.hosting.purgatory import PartitionWatchers
from tidelog.broker.replicas.hosting.role import FollowerRole, NoRole, Role
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode
from tidelog.core.ports import Buffer
from tidelog.core.types import NO_EPOCH, NO_LEADER, EpochEnd, TopicId
from tidelog.replication import commands, truncation, watermark
from tidelog.replication.follower import FollowerReplica
from tidelog.replication.isr import IsrState
from tidelog.replication.leader import LeaderReplica, epoch_error

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.context import PartitionContext
    from tidelog.log.config import LogConfig
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import AppendInfo, PartitionLog
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState


class Partition:
    """A replica on this broker; without a role until the controller gives it one (V44)."""

    __slots__ = (
        "_context",
        "_pending",
        "_services",
        "directory",
        "is_closing",
        "is_given_up",
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
        known = watermark.on_follower(high_watermark, log.log_start_offset, log.log_end_offset)
        #: The present role; another object with each role that begins or ends.
        self.role: Role = NoRole(context.services, log, NO_EPOCH, known)
        #: The leader epoch of the last command obeyed; kept when the role ends (V30).
        self.leader_epoch = NO_EPOCH
        #: The partition is about to be removed: the leader takes no more records (V71).
        self.is_closing = False
        #: The controller is to take this damaged replica out of the ISR as an offline one (V68).
        self.is_given_up = False
        #: The high watermark that a leader reported last since this broker started, this replica as
        #: leader included; -1 for none.
        self.told_high_watermark = -1
        self.watchers = PartitionWatchers()
        #: Operations on the log that are not done.
        self._pending: list[Completion[Any]] = []

    # state

    @property
    def topic_id(self) -> TopicId:
        """The id of the topic that the log belongs to."""
        return self.log.topic_id

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return self.role.is_leader

    @property
    def leadership(self) -> LeaderReplica | None:
        """The decisions of the present leadership; None unless this replica leads."""
        return self.role.leadership

    @property
    def followership(self) -> FollowerReplica | None:
        """The decisions of the present follower term; None unless this replica follows."""
        return self.role.followership

    @property
    def high_watermark(self) -> int:
        """The offset after the last record known as committed."""
        return self.role.core.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which consumers of committed transactions read; its log decides it."""
        return self.log.last_stable_offset(self.role.core.high_watermark)

    @property
    def low_watermark(self) -> int:
        """The least log start offset of all live replicas; -1 where this broker cannot know."""
        return self.role.low_watermark

    @property
    def partition_epoch(self) -> int:
        """The newest partition epoch known, by command or by a response of the controller."""
        return self.role.partition_epoch

    def has_topic_id(self, topic_id: TopicId) -> bool:
        """Whether a request that names `topic_id` means this replica's topic (V23, G4)."""
        return commands.topic_id_matches(self.log.topic_id, topic_id)

    @property
    def has_role(self) -> bool:
        """Whether the controller gave this replica a role that has not ended."""
        return self.role.is_assigned

    def has_role_of(self, leader_epoch: int) -> bool:
        """Whether this replica has a role, and has it under this leader epoch."""
        return self.role.is_assigned and self.leader_epoch == leader_epoch

    def check_leader_epoch(self, asked_epoch: int) -> ErrorCode:
        """Return why to refuse a request that names `asked_epoch` (V37), NONE to serve it."""
        own_epoch = self.leader_epoch
        if asked_epoch != own_epoch and (error := epoch_error(own_epoch, asked_epoch)):
            return error
        return ErrorCode.NONE if self.role.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
        """Return where a follower's log diverges (V32); raises KafkaError OFFSET_OUT_OF_RANGE."""
        log = self.log
        return truncation.diverging_epoch(
            log.epochs, log.log_end_offset, last_fetched_epoch, fetch_offset
        )

    # changes of the log

    def append(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Plan an append as leader; `PlannedAppends` submits it when the read event ends.

        `now_ms` is wall time. Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS for
        acks=-1 (V64), or a refusal of the log. A batch that is large inside is planned later, and
        so are the batches behind it: then the completion carries such an error.
        """
        return self.role.append(records, acks, now_ms)

    def flush_appends(self) -> bool:
        """Submit the planned appends; return True when every append here is written already."""
        return self.submit(self._context.appends.take(self))

    def submit(self, planned: Sequence[Completion[AppendInfo]]) -> bool:
        """Submit these planned appends; return True when every append here is written already.

        The planned batches become readable together, and the high watermark is looked at once.
        """
        self.log.submit_planned()
        late = self.role.late
        # An append that waits for a check is not even planned, and its bytes are still to be read.
        is_all_written = late is None or not late.waiting
        for completion in planned:
            if not completion.done:
                # Every completion counts, not the last alone: a repeated batch is done with its
                # original.
                completion.then(self._log_grew)
                self.track(completion)
                is_all_written = False
        if planned:
            self.role.log_grew()
        return is_all_written

    def _log_grew(self, _: Completion[AppendInfo]) -> None:
        self.role.log_grew()

    def awaits_sync(self, next_offset: int) -> bool:
        """Whether acks=1 must wait until the log is synced up to `next_offset` (V69)."""
        log = self.log
        return log.config.flush_before_ack and log.recovery_point < next_offset

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
        return self.role.delete_records_before(offset)

    def log_start_moved(self) -> None:
        """Note that retention or a client has removed records."""
        self.role.log_start_moved()
        self.watchers.isr_or_log_start_changed(self)

    def configured(
        self, config: LogConfig, min_insync_replicas: int, counts_pending_reads: bool = False
    ) -> None:
        """Apply the topic's configuration, which may have changed (V60, V64, V69, F5)."""
        self.log.configured(config)
        self.role.minimum_changed(min_insync_replicas)
        self.role.flush_policy_changed()
        self.role.pending_reads_changed(counts_pending_reads)

    def is_quiet(self) -> bool:
        """Whether the log is quiet: planned appends are written, and no operation is under way."""
        self.flush_appends()
        return all(completion.done for completion in self._pending)

    async def quiet(self) -> None:
        """Return when no operation is under way on the log."""
        while self._pending:
            completion = self._pending.pop()
            if not completion.done:
                self._services.tracer.mark("log_busy_at_role_change")
                waiter: Completion[None] = Completion()
                completion.then(lambda _, waiter=waiter: waiter.resolve(None))  # type: ignore[misc]
                await waiter

    def track(self, completion: Completion[Any]) -> None:
        """Track an operation on the log: the replica may take no role before it is done."""
        if not completion.done:
            if len(self._pending) > 8:
                self._pending = [pending for pending in self._pending if not pending.done]
            self._pending.append(completion)

    def received(self, count_bytes: int) -> None:
        """Count the bytes that a fetch brought, if a reassignment adds this replica (R16)."""
        self._context.reassignments.received(self.topic_partition, count_bytes)

    def relocated(self, directory: LogDirectory, log: PartitionLog) -> None:
        """Be in another log directory, with a log that has the same records (D11)."""
        self.directory, self.log = directory, log
        self.role.log_replaced(log)
        self.watchers.look_again()

    # changing roles

    def rest(self, *, leads_on: bool = False) -> None:
        """End the role: serve nothing, follow no leader; respond to all waiting requests (V38).

        With `leads_on` the command that ends it has this broker lead under a new leader epoch.
        """
        ended = self.role
        if ended.is_assigned:
            known = ended.core.high_watermark
            self.role = role = NoRole(self._services, self.log, ended.partition_epoch, known)
            if leads_on:
                role.former = ended.leadership
            self._context.reassignments.role_ended(self.topic_partition)
            ended.end()
        elif isinstance(ended, NoRole) and not leads_on:
            ended.former = None

    def become_leader(self, state: LeaderAndIsrPartitionState) -> None:
        """Lead under a new leader epoch (V31); the log is quiet."""
        services, log = self._services, self.log
        log_end_offset = log.log_end_offset
        role_traces.mark_election(services.tracer, self, state)
        latest_epoch = log.epochs.latest_epoch
        if latest_epoch != state.leader_epoch:
            # Followers reconcile with this entry, even if no record of the epoch ever comes.
            log.assign_epoch(state.leader_epoch, log_end_offset)
        topic_config = self._context.topic_config(self.topic_partition.topic)
        idle = tuple(state.idle)
        core = LeaderReplica(
            broker_id=services.broker_id,
            broker_epoch=services.broker_epoch,
            leader_epoch=state.leader_epoch,
            isr=IsrState(tuple(state.isr), state.partition_epoch),
            replicas=tuple(state.replicas),
            epoch_start_offset=log_end_offset,
            log_end_offset=log_end_offset,
            high_watermark=self._starting_high_watermark(),
            min_insync_replicas=topic_config.min_insync_replicas,
            max_lag_ms=services.config.replica_lag_time_max_ms,
            max_lag_bytes=services.config.replica_lag_max_bytes,
            is_eligible=may_join(services, idle),
            now_ms=services.clock.monotonic_ms(),
            recovery_state=state.leader_recovery_state,
            has_eligible=bool(state.eligible),
            flush_before_ack=log.config.flush_before_ack,
            synced_offset=min(log.recovery_point, log_end_offset),
            counts_pending_reads=topic_config.follower_fetch_pending_reads_insync_enable,
        )
        former = self.role.former if isinstance(self.role, NoRole) else self.role.leadership
        if former is not None:
            core.continues(former, services.clock.monotonic_ms())
        role = LeaderRole(self, self._context, core, self.role.late, idle)
        self._take_role(role, core, state, "became_leader")
        role.begin(state, latest_epoch)

    def become_follower(self, state: LeaderAndIsrPartitionState) -> None:
        """Follow under a new leader epoch (V32, V33); the log is quiet.

        Without a leader (-1) the replica waits for the next command. Outside the ISR it truncates
        a damaged log first (V68).
        """
        log = self.log
        damaged_from = None
        if log.damage is not None:
            members = (*state.isr, *state.eligible)
            damaged_from = truncation.before_damage(
                log.damage.offset, self._services.broker_id, members
            )
        if state.leader == NO_LEADER:
            self._services.tracer.mark("follower_without_leader")
        else:
            now_ms = self._services.clock.monotonic_ms()
            self.watchers.another_leads(now_ms)
            log.producers.refused.another_leads(now_ms)
        core = FollowerReplica(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            latest_epoch=log.epochs.latest_epoch,
            high_watermark=self._starting_high_watermark(),
            damaged_from=damaged_from,
        )
        self._take_role(FollowerRole(self, self._services, core), core, state, "became_follower")

    def recommanded(self, state: LeaderAndIsrPartitionState) -> None:
        """Obey a command of the role's leader epoch; a repeated command resets nothing."""
        self.is_closing = state.is_closing
        self._context.throttles.role_repeated(self.topic_partition, state)
        self.role.commanded(state)

    def _starting_high_watermark(self) -> int:
        log = self.log
        return watermark.on_follower(self.high_watermark, log.log_start_offset, log.log_end_offset)

    def _take_role(
        self,
        role: Role,
        core: LeaderReplica | FollowerReplica,
        state: LeaderAndIsrPartitionState,
        event: str,
    ) -> None:
        self.role = role
        self._context.throttles.role_taken(self.topic_partition, state)
        self._context.reassignments.role_taken(self.topic_partition, state)
        self.leader_epoch = state.leader_epoch
        self.is_closing = state.is_closing
        self.is_given_up = False
        role_traces.role_taken(self._services.tracer, self, core, state, event)
