"""A leading replica: follower progress, ISR, high watermark (V31, V60 to V65, A4 to A9, F1 to F4).

One object represents one leadership, that is one leader epoch. A new leadership starts without
earlier follower progress, because a follower may have truncated its log in between (V31). If the
same broker stays leader under a new leader epoch, it keeps only its pending reads for followers
(F7). Follower fetches and appends are the hot path: it allocates nothing unless the state changes.
The leader does not know the log's contents, the network, or the store; the time is an argument. The
caller reports the outcome of a proposed ISR change. If a follower's fetch must be refused, the
methods raise a KafkaError with the error of the response.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_BROKER_EPOCH, NO_EPOCH, RECOVERED, RECOVERING
from tidelog.replication import isr as isr_rules
from tidelog.replication import synced_offsets, watermark
from tidelog.replication.effects import (
    MOVED,
    NOTHING,
    Effects,
    IsrBelowMinimum,
    IsrCommitted,
    RetryAlterPartition,
    SendAlterPartition,
    WithdrawAlterPartition,
)
from tidelog.replication.isr import Awaits, IsrChange, IsrState
from tidelog.replication.pending_reads import PendingReads
from tidelog.replication.progress import NEVER_MS, FollowerProgress
from tidelog.replication.reads_under_way import ReadsUnderWay
from tidelog.replication.shrinks import shrink_of

#: Minimum time between two proposals to add a follower that the controller refused. A refused
#: follower is shutting down or re-registering; without a minimum time, the leader would propose it
#: again at each of its fetches.
REFUSED_JOIN_BACKOFF_MS = 500


def epoch_error(own_epoch: int, asked_epoch: int) -> ErrorCode:
    """Return the error of a request with the leader epoch `asked_epoch`, NONE if it may be served
    (V37).

    The epoch -1 means that the request names no leader epoch; it may be served.
    """
    if asked_epoch in (own_epoch, NO_EPOCH):
        return ErrorCode.NONE
    if asked_epoch < own_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def _same(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether two ISRs have the same members, in any order."""
    return sorted(one) == sorted(other)


class LeaderReplica:
    """The leader of one partition in one leader epoch."""

    __slots__ = (
        "_others",
        "broker_epoch",
        "broker_id",
        "counts_pending_reads",
        "epoch_start_offset",
        "flush_before_ack",
        "followers",
        "has_eligible",
        "high_watermark",
        "is_recovering",
        "isr",
        "leader_epoch",
        "log_end_offset",
        "max_lag_bytes",
        "max_lag_ms",
        "min_insync_replicas",
        "minimum",
        "reads_under_way",
        "replicas",
        "synced_offset",
    )

    def __init__(
        self,
        *,
        broker_id: int,
        broker_epoch: int,
        leader_epoch: int,
        isr: IsrState,
        replicas: tuple[int, ...],
        epoch_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        min_insync_replicas: int,
        max_lag_ms: int,
        max_lag_bytes: int = -1,
        is_eligible: Callable[[int], bool],
        now_ms: int,
        recovery_state: int = RECOVERED,
        has_eligible: bool = False,
        flush_before_ack: bool = False,
        synced_offset: int = 0,
        counts_pending_reads: bool = False,
    ) -> None:
        assert epoch_start_offset <= log_end_offset, "a leader epoch begins at the log end (V31)"
        assert high_watermark <= log_end_offset, "only records of the log are committed (V60)"
        assert synced_offset <= log_end_offset, "only records of the log are synced (V69)"
        assert broker_id in replicas, "a leader is assigned"
        assert broker_id in isr.committed, "a leader is a member of its ISR (V12, V13)"
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.replicas = replicas
        #: Start offset of this leader epoch; a follower must reach this offset before it joins the
        #: ISR (V63).
        self.epoch_start_offset = epoch_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.min_insync_replicas = min_insync_replicas
        self.minimum = watermark.effective_minimum(min_insync_replicas, len(replicas))
        self.max_lag_ms = max_lag_ms
        self.max_lag_bytes = max_lag_bytes
        #: Whether the leader was elected from outside the ISR, and the partition's state is still
        #: RECOVERING. The new epoch begins at the log end, so nothing is left to recover: the
        #: next ISR change sets RECOVERED (A3).
        self.is_recovering = recovery_state == RECOVERING
        #: Whether the partition state has eligible replicas outside the ISR. The controller may
        #: elect an eligible replica, which has only the records committed so far. The leader
        #: therefore commits no more records until the controller has cleared the eligible replicas
        #: (E1).
        self.has_eligible = has_eligible
        #: Whether the high watermark counts replicas by synced offsets instead of log ends (V69).
        #: `synced_offset` is the leader's own synced offset.
        self.flush_before_ack = flush_before_ack
        self.synced_offset = synced_offset
        #: Whether a follower that waits for this leader's reads stays in the ISR (F5).
        self.counts_pending_reads = counts_pending_reads
        #: Disk reads for followers and consumers; by their age the leader decides whether to give
        #: up its role (F11).
        self.reads_under_way = ReadsUnderWay()
        self.followers: dict[int, FollowerProgress] = {}
        self._others: tuple[FollowerProgress, ...] = ()
        self._follow(replicas, is_eligible, now_ms)

    # Hot path.

    def appended(self, log_end_offset: int, now_ms: int) -> Effects:
        """Record that the leader's own log grew; a leader alone in the ISR commits the new records.

        A follower that had the whole log was in sync until now (F3), even if its last fetch is long
        ago: fetches of a fetch session do not name partitions without changes.
        """
        assert log_end_offset >= self.log_end_offset, "a leader does not truncate its log (V31)"
        for follower in self._others:
            if follower.log_end_offset == self.log_end_offset:
                follower.last_caught_up_ms = now_ms
        self.log_end_offset = log_end_offset
        return MOVED if self._advance(now_ms) else NOTHING

    def synced(self, synced_offset: int, now_ms: int) -> Effects:
        """Record that the leader's own log is on the disk up to `synced_offset` (V69)."""
        assert synced_offset <= self.log_end_offset, "only records of the log are synced (V69)"
        if synced_offset <= self.synced_offset:
            return NOTHING
        self.synced_offset = synced_offset
        return MOVED if self._advance(now_ms) else NOTHING

    def follower(self, replica_id: int, broker_epoch: int, now_ms: int) -> FollowerProgress:
        """Return the follower that fetches as `replica_id` (V63).

        Raises KafkaError UNKNOWN_LEADER_EPOCH for a replica that is not assigned, because this
        leader may not know the newest assignment. Raises NOT_LEADER_OR_FOLLOWER for a fetch of an
        earlier incarnation of the follower's broker. Raises NOT_LEADER_OR_FOLLOWER also for a fetch
        without a broker epoch, if a fetch with a broker epoch arrived within `max_lag_ms`. After
        that time, the leader assumes that the follower's broker restarted at a protocol level
        without broker epochs. Source: Partition.followerReplicaOrThrow.
        """
        follower = self.followers.get(replica_id)
        if follower is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {replica_id} is not among the replicas {list(self.replicas)}",
            )
        if broker_epoch < follower.broker_epoch and (
            broker_epoch != NO_BROKER_EPOCH or now_ms - follower.last_fetch_ms <= self.max_lag_ms
        ):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker epoch {broker_epoch} of broker {replica_id} is older than "
                f"{follower.broker_epoch}, which fetched already",
            )
        return follower

    def fetched(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        is_synced: bool = False,
        reads: PendingReads | None = None,
    ) -> Effects:
        """Apply a fetch, which shows that the follower has the leader's log up to `fetch_offset`
        (F1, F2, V60, V63).

        `is_synced` means that the follower has synced its log up to `fetch_offset` (V69). `reads`
        are the reads for this follower's fetches (F5).

        The caller has compared leader epochs and found no divergence. Raises the KafkaErrors of
        `follower`, and OFFSET_OUT_OF_RANGE for an offset above the leader's LEO.
        """
        follower = self.follower(replica_id, broker_epoch, now_ms)
        if fetch_offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {fetch_offset} is above the log end {self.log_end_offset}",
            )
        end = follower.fetched_from(fetch_offset, is_synced, self.flush_before_ack)
        moved = end != follower.log_end_offset
        follower.fetched(
            end,
            log_start_offset,
            self.log_end_offset,
            broker_epoch,
            now_ms,
            reads if self.counts_pending_reads else None,
        )
        follower.reads_shown = reads
        if isr_rules.reached(end, self.high_watermark, self.epoch_start_offset):
            follower.counted_broker_epoch = broker_epoch
        effects = NOTHING if follower.in_target_isr else self._join(follower, now_ms)
        if moved and self._advance(now_ms):
            return (*effects, *MOVED) if effects else MOVED
        return effects

    def fetch_refused(self, replica_id: int, now_ms: int) -> None:
        """Record that a fetch was refused for its leader or broker epoch, and so proves no
        progress.

        The refusal explains why a member falls out of sync although it fetches.
        """
        follower = self.followers.get(replica_id)
        if follower is not None:
            follower.last_refused_ms = now_ms

    def _advance(self, now_ms: int) -> bool:
        """Raise the high watermark as far as possible; return whether it rose (V60, E1)."""
        if self.has_eligible or len(self.isr.committed) < self.minimum:
            return False
        offset = watermark.high_watermark(
            self.log_end_offset, self._others, now_ms, self.max_lag_ms
        )
        if self.flush_before_ack:
            offset = synced_offsets.committable(offset, self.synced_offset)
        if offset <= self.high_watermark:
            return False
        assert offset <= self.log_end_offset, "only records of the log are committed (V60)"
        self.high_watermark = offset
        return True

    # Rare changes.

    def examine(self, now_ms: int) -> Effects:
        """Find replicas that join or leave the ISR, and raise the high watermark (V62, V63, A9).

        An examination is due when the broker becomes leader, every half of
        `replica.lag.time.max.ms`, and when an input of the decision has changed.
        """
        for progress in self._others:
            assert progress.log_end_offset <= self.log_end_offset, "a follower has no more (F2)"
        target: list[int] = []
        wanted = isr_rules.target_isr(self.isr)
        for replica in self.replicas:
            follower = self.followers.get(replica)
            if follower is None:
                stays = True
            else:
                stays = (
                    replica in wanted or self._may_join_unfetched(follower, now_ms)
                ) and not isr_rules.must_leave(
                    follower, self.log_end_offset, now_ms, self.max_lag_ms, self.max_lag_bytes
                )
            if stays:
                target.append(replica)
        effects = self._propose(tuple(target), now_ms)
        return (*effects, *MOVED) if self._advance(now_ms) else effects

    def commanded(
        self,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        partition_epoch: int,
        is_eligible: Callable[[int], bool],
        now_ms: int,
        recovery_state: int = RECOVERED,
        has_eligible: bool = False,
    ) -> Effects:
        """Apply a command of this same leader epoch; a repeated command resets nothing (V31, A9).

        If a change awaits a command, and the command has the partition epoch on which the change
        builds, the leader requests the change again. Such a command does not show whether the
        change was made, and may be the last (A3). If it arrives while the leader awaits a
        response, the leader awaits the response first. The caller has checked the command (V30).
        """
        if partition_epoch == self.isr.partition_epoch and self.isr.awaits is Awaits.RESPONSE:
            self.isr = isr_rules.commanded_early(self.isr)
            return NOTHING
        if partition_epoch == self.isr.partition_epoch and self.isr.awaits is Awaits.COMMAND:
            self.isr = isr_rules.command_repeated(self.isr)
            return self._go_on(now_ms)
        if partition_epoch <= self.isr.partition_epoch:
            return NOTHING
        assert self.broker_id in replicas, "a leader is assigned"
        self.replicas = replicas
        self.minimum = watermark.effective_minimum(self.min_insync_replicas, len(replicas))
        self.is_recovering = recovery_state == RECOVERING
        self.has_eligible = has_eligible
        return self._commit(isr, partition_epoch, is_eligible, now_ms)

    def change_sent(self, change: IsrChange) -> None:
        """Record that the broker sends the change to the controller, which may accept it from now
        on.

        `change` is the queued change, or the newest change, which is requested again.
        """
        self.isr = isr_rules.sent(self.isr, change)

    def change_unanswered(self, change: IsrChange, now_ms: int, held_ms: int = 0) -> Effects:
        """Record that the request for `change` got no response that shows its outcome (A2, A8).

        The maximal ISR still includes `change`. The leader examines every replica, because a newer
        change may now supersede `change`. Otherwise the leader requests `change` again, after
        `held_ms` if the controller delays expansions for so long (A11).
        """
        if self.isr.awaits is not Awaits.RESPONSE or self.isr.in_flight[-1] != change:
            return NOTHING
        self.isr = isr_rules.unanswered(self.isr)
        return self._go_on(now_ms, held_ms)

    def is_to_be_sent(self, change: IsrChange) -> bool:
        """Return whether the next request carries `change`."""
        return isr_rules.is_to_be_sent(self.isr, change)

    def is_wanted(self, change: IsrChange) -> bool:
        """Return whether `change` is queued, or in flight without a known outcome."""
        return change in isr_rules.changes(self.isr)

    def change_accepted(
        self,
        change: IsrChange,
        isr: tuple[int, ...],
        leader_epoch: int,
        partition_epoch: int,
        now_ms: int,
        has_eligible: bool = False,
    ) -> Effects:
        """Apply the partition's state with which the controller responded (A1, A4, A9).

        The leader ignores a response for another leadership, or with an older partition epoch than
        it knows. A response with the known partition epoch says that the ISR already equals
        `change`. This response ends only `change`, no other change in flight (A8), and is ignored
        if `change` is no longer in flight.
        """
        if leader_epoch != self.leader_epoch or partition_epoch < self.isr.partition_epoch:
            return NOTHING
        if partition_epoch == self.isr.partition_epoch and not self.is_wanted(change):
            return NOTHING
        # Every proposed change has the leader recovery state RECOVERED.
        self.is_recovering = False
        self.has_eligible = has_eligible
        return self._commit(isr, partition_epoch, self._known_eligible, now_ms, change)

    def change_refused(self, change: IsrChange, error: ErrorCode, now_ms: int) -> Effects:
        """Apply the controller's refusal of `change` (A3, A8)."""
        if not self.is_wanted(change):
            return NOTHING
        if error in isr_rules.NOT_MADE:
            return self._not_made(change, now_ms)
        if error in isr_rules.WAIT_FOR_COMMAND:
            before, self.isr = self.isr, isr_rules.left_to_command(self.isr, change)
            return self._go_on(now_ms) if before.was_commanded else NOTHING
        return self.change_unanswered(change, now_ms)

    def eligibility_changed(self, is_eligible: Callable[[int], bool], now_ms: int) -> Effects:
        """Examine the followers, because brokers have registered, or their registrations have
        ended.

        A broker's registration decides whether its follower may join the ISR, and whether the high
        watermark waits for it (V60).
        """
        for follower in self._others:
            follower.is_eligible = is_eligible(follower.replica_id)
        return self.examine(now_ms)

    def minimum_changed(self, min_insync_replicas: int, now_ms: int) -> Effects:
        """Apply a new value of `min.insync.replicas` (V60)."""
        was_enough = not self.is_below_minimum
        self.min_insync_replicas = min_insync_replicas
        self.minimum = watermark.effective_minimum(min_insync_replicas, len(self.replicas))
        below = (IsrBelowMinimum(),) if was_enough and self.is_below_minimum else NOTHING
        return (*below, *MOVED) if self._advance(now_ms) else below

    def flush_before_ack_changed(self, flush_before_ack: bool, now_ms: int) -> Effects:
        """Apply a new value of `flush.before.ack` (V69); the high watermark never goes back.

        A follower that was in sync gets a full `replica.lag.time.max.ms`, in which its next fetch
        can report that its log is synced.
        """
        self.flush_before_ack = flush_before_ack
        for each in self._others:
            if each.log_end_offset == self.log_end_offset:
                each.last_caught_up_ms = now_ms
            each.recount(flush_before_ack)
        return self.examine(now_ms)

    def pending_reads_changed(self, is_enabled: bool) -> None:
        """Apply a new value of `follower.fetch.pending.reads.insync.enable` (F5).

        If `is_enabled`, pending reads for fetches from now on keep followers in the ISR; otherwise
        pending reads keep no follower in the ISR.
        """
        self.counts_pending_reads = is_enabled
        if not is_enabled:
            for follower in self._others:
                follower.forget_reads()

    def continues(self, former: LeaderReplica, now_ms: int) -> None:
        """Take over the reads under way from this broker's former leadership (F7, F11).

        Another broker may have led in between, and followers may have truncated their logs. This is
        safe: pending reads only keep a member in the ISR, and the high watermark still waits until
        every member has fetched (F8).
        """
        self.reads_under_way = former.reads_under_way
        for follower in self._others:
            known = former.followers.get(follower.replica_id)
            if known is not None:
                follower.reads_shown = known.reads_shown
                if self.counts_pending_reads:
                    follower.keep_reads(known, now_ms)

    def reads_forgotten(self, replica_id: int, reads: PendingReads) -> None:
        """Record that a follower's fetch session no longer includes this partition (F7)."""
        follower = self.followers.get(replica_id)
        if follower is not None and follower.reads is reads:
            follower.forget_reads()

    def must_relinquish(self, now_ms: int) -> bool:
        """Return whether this leader should give up its role: its disk reads hang, and another ISR
        member could lead (F11).
        """
        return self.reads_under_way.age_ms(now_ms) > self.max_lag_ms and self.can_be_replaced

    @property
    def can_be_replaced(self) -> bool:
        """Whether another live member of the confirmed ISR could lead."""
        return any(
            follower.is_eligible and follower.replica_id in self.isr.committed
            for follower in self._others
        )

    @property
    def is_below_minimum(self) -> bool:
        """Whether the leader must reject acks=all, because the confirmed ISR is below the minimum
        (V64, A7).
        """
        return len(self.isr.committed) < self.minimum

    @property
    def awaits_eligible(self) -> bool:
        """Whether eligible replicas keep records that were accepted with acks=all from being
        committed (E1).

        Eligible replicas may exist beside a large ISR if the controller uses a greater
        min.insync.replicas than this leader, or has not cleared them yet.
        """
        return self.has_eligible and not self.is_below_minimum

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the lowest log start offset of all live replicas.

        `log_start_offset` is the leader's own log start. Returns -1 while a live follower has not
        reported its log start. No live replica serves a record below the low watermark, so
        DeleteRecords waits until the low watermark has risen (KIP-107).
        """
        low = log_start_offset
        for follower in self._others:
            if follower.is_eligible and follower.log_start_offset < low:
                low = follower.log_start_offset
        return low

    @property
    def is_watermark_current(self) -> bool:
        """Whether the high watermark has reached the start offset of this leader epoch.

        Until then, the leader responds to ListOffsets for 'latest' with an error instead of an
        offset (V36).
        """
        return self.high_watermark >= self.epoch_start_offset

    # Internals.

    def _commit(
        self,
        isr: tuple[int, ...],
        partition_epoch: int,
        is_eligible: Callable[[int], bool],
        now_ms: int,
        change: IsrChange | None = None,
    ) -> Effects:
        assert partition_epoch >= self.isr.partition_epoch, "no older state is taken over (A9)"
        assert self.broker_id in isr, "a leader is a member of its ISR (V12, V13)"
        was_enough = not self.is_below_minimum
        if change is not None and partition_epoch == self.isr.partition_epoch:
            self.isr = isr_rules.confirmed_as_known(self.isr, change, isr)
        else:
            self.isr = isr_rules.committed(isr, partition_epoch)
        self._follow(self.replicas, is_eligible, now_ms)
        effects: Effects = (IsrCommitted(),)
        if was_enough and self.is_below_minimum:
            effects = (*effects, IsrBelowMinimum())
        return (*effects, *self._go_on(now_ms))

    def _go_on(self, now_ms: int, held_ms: int = 0) -> Effects:
        """Examine every replica; if the newest change in flight is not superseded, request it
        again.

        The broker repeats the request only after `held_ms`.
        """
        effects = self.examine(now_ms)
        again = isr_rules.repetition(self.isr)
        return effects if again is None else (*effects, RetryAlterPartition(again, held_ms))

    def _not_made(self, change: IsrChange, now_ms: int) -> Effects:
        """Drop `change`, which the controller has not made and never will (A8).

        A follower that `change` would have added is not proposed for `REFUSED_JOIN_BACKOFF_MS`, and
        the rest of `change` is proposed again. If `change` would have added no follower, the leader
        proposes nothing until its next examination, because it would now propose the same
        change.
        """
        self.isr = isr_rules.not_made(self.isr, change)
        self._mark()
        barred = False
        for follower in self._others:
            if follower.replica_id in change.isr and not follower.in_target_isr:
                follower.refused_until_ms = now_ms + REFUSED_JOIN_BACKOFF_MS
                barred = True
        if barred or self.isr.in_flight:
            return self._go_on(now_ms)
        return MOVED if self._advance(now_ms) else NOTHING

    def _may_join(self, follower: FollowerProgress, now_ms: int) -> bool:
        return now_ms >= follower.refused_until_ms and isr_rules.may_join(
            follower, self.high_watermark, self.epoch_start_offset
        )

    def _may_join_unfetched(self, follower: FollowerProgress, now_ms: int) -> bool:
        """Return whether a follower may join the ISR between its fetches (V63).

        If the follower's fetches have no broker epoch, its progress may come from an earlier
        incarnation than the registered one; only its next fetch then proves that it has the log.
        """
        return follower.counted_broker_epoch != NO_BROKER_EPOCH and self._may_join(follower, now_ms)

    def _join(self, follower: FollowerProgress, now_ms: int) -> Effects:
        """If a follower that has just fetched may join the ISR, propose the ISR with this follower
        (V63).
        """
        if not isr_rules.may_propose(self.isr) or not self._may_join(follower, now_ms):
            return NOTHING
        wanted = isr_rules.target_isr(self.isr)
        return self._propose(
            tuple(
                replica
                for replica in self.replicas
                if replica in wanted or replica == follower.replica_id
            ),
            now_ms,
        )

    def _propose(self, target: tuple[int, ...], now_ms: int) -> Effects:
        """Queue an ISR change to `target`, unless it is already proposed or a request awaits its
        response (A8).

        If `target` is the confirmed ISR, the leader requests nothing: it withdraws a queued change,
        and awaits the outcome of a change in flight. The controller would respond with success to a
        request for the confirmed ISR (A4), which would not show the outcome of a change in
        flight.
        """
        state = self.isr
        if not isr_rules.may_propose(state):
            return NOTHING
        queued, in_flight = state.queued, state.in_flight
        is_known = bool(isr_rules.changes(state)) or not self.is_recovering
        if is_known and _same(target, isr_rules.target_isr(state)):
            return NOTHING
        is_back = _same(target, state.committed) and not self.is_recovering
        if is_back or (in_flight and _same(target, in_flight[-1].isr)):
            return NOTHING if queued is None else self._withdraw(queued)
        assert self.broker_id in target, "a leader does not propose to leave its ISR (A1)"
        change = IsrChange(
            isr=target,
            isr_epochs=tuple(self._epoch_of(member) for member in target),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.isr.partition_epoch,
            shrinks=tuple(
                shrink_of(self.followers[member], self.log_end_offset, now_ms, self.max_lag_ms)
                for member in self.isr.committed
                if member not in target
            ),
        )
        self.isr = isr_rules.queue(self.isr, change)
        self._mark()
        return (SendAlterPartition(change),)

    def _withdraw(self, queued: IsrChange) -> Effects:
        """Withdraw the queued change; if a change is in flight, request that change again."""
        self.isr = isr_rules.withdraw(self.isr)
        self._mark()
        again = isr_rules.repetition(self.isr)
        effects: Effects = (WithdrawAlterPartition(queued),)
        return effects if again is None else (*effects, RetryAlterPartition(again))

    def _epoch_of(self, member: int) -> int:
        if member == self.broker_id:
            return self.broker_epoch
        return self.followers[member].counted_broker_epoch

    def _known_eligible(self, replica_id: int) -> bool:
        follower = self.followers.get(replica_id)
        return follower is not None and follower.is_eligible

    def _follow(
        self, replicas: tuple[int, ...], is_eligible: Callable[[int], bool], now_ms: int
    ) -> None:
        """Keep the progress of assigned replicas, and of ISR members outside the assignment.

        An ISR member whose progress is unknown gets a grace period (V31).
        """
        kept: dict[int, FollowerProgress] = {}
        members = self.isr.committed
        for replica in (*replicas, *members):
            if replica == self.broker_id or replica in kept:
                continue
            follower = self.followers.get(replica)
            if follower is None:
                follower = FollowerProgress(replica, NEVER_MS)
                if replica in members:
                    follower = FollowerProgress(replica, now_ms, self.log_end_offset)
            follower.is_eligible = is_eligible(replica)
            kept[replica] = follower
        self.followers = kept
        self._others = tuple(kept.values())
        self._mark()

    def _mark(self) -> None:
        maximal = isr_rules.maximal_isr(self.isr)
        target = isr_rules.target_isr(self.isr)
        for follower in self._others:
            follower.in_maximal_isr = follower.replica_id in maximal
            follower.in_target_isr = follower.replica_id in target

    # The following methods serve the model checker.

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value, for the model checker."""
        return (
            self.broker_id,
            self.broker_epoch,
            self.leader_epoch,
            self.isr,
            self.replicas,
            self.epoch_start_offset,
            self.log_end_offset,
            self.high_watermark,
            self.min_insync_replicas,
            self.max_lag_ms,
            self.max_lag_bytes,
            self.is_recovering,
            self.has_eligible,
            self.flush_before_ack,
            self.synced_offset,
            self.counts_pending_reads,
            tuple(follower.key() for follower in self._others),
        )

    def copy(self) -> LeaderReplica:
        """Return an independent copy."""
        other = LeaderReplica.__new__(LeaderReplica)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.followers = {number: each.copy() for number, each in self.followers.items()}
        other._others = tuple(other.followers.values())
        return other
