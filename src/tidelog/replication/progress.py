"""Follower progress as the leader sees it: the follower's log end, and when it was last caught up.

This module implements F1 to F4. A follower is caught up at the time of a fetch whose offset reaches
the leader's current LEO. If the fetch offset reaches only the LEO that the leader had at the
previous fetch, the follower was caught up at the time of the previous fetch. A follower that is
always a little behind a busy leader thus stays in sync. Times are monotonic milliseconds of the
leader's own clock. The module does not know the ISR: the leader sets three flags (`is_eligible`,
`in_maximal_isr`, `in_target_isr`) for the hot path. If the leader counts pending reads, its own
slow reads do not put a follower out of sync (F5 to F7, `pending_reads`). If the same broker stays
leader in a new leader epoch, only the pending reads are kept (V31).
"""

from __future__ import annotations

from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.replication import synced_offsets
from tidelog.replication.pending_reads import NEVER_MS, PendingReads

__all__ = ["NEVER_MS", "UNKNOWN_OFFSET", "FollowerProgress"]

#: The value for the log end of a follower that has not fetched in this leadership.
UNKNOWN_OFFSET = -1


class FollowerProgress:
    """One follower as its leader sees it (F1)."""

    __slots__ = (
        "broker_epoch",
        "bytes_behind",
        "counted_broker_epoch",
        "fetch_offset",
        "in_maximal_isr",
        "in_target_isr",
        "is_eligible",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "last_refused_ms",
        "log_end_offset",
        "log_start_offset",
        "reached_previous_end",
        "reads",
        "reads_shown",
        "reads_since_ms",
        "refused_until_ms",
        "replica_id",
        "synced_offset",
    )

    def __init__(
        self,
        replica_id: int,
        last_caught_up_ms: int,
        leader_end_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        """Start progress for a new leadership; for an ISR member, `leader_end_offset` is the
        leader's LEO (F5).
        """
        self.replica_id = replica_id
        self.log_start_offset = UNKNOWN_OFFSET
        #: The follower's log end that the high watermark uses: its fetch offset, or its synced
        #: offset under `flush.before.ack` (V69).
        self.log_end_offset = UNKNOWN_OFFSET
        #: Offset of the last fetch; `synced_offset` is the offset up to which the follower has
        #: synced its log.
        self.fetch_offset = UNKNOWN_OFFSET
        self.synced_offset = UNKNOWN_OFFSET
        #: The leader's LEO when the last fetch arrived. For an ISR member that has not fetched,
        #: this is the leader's LEO at the beginning of its leadership, so that a slow first read
        #: does not put the member out of sync (F5).
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = last_caught_up_ms
        #: When the leader last refused a fetch of the follower because of the fetch's epochs.
        self.last_refused_ms = NEVER_MS
        #: Bytes of the leader's log beyond the follower's log end, as the last periodic examination
        #: computed them; 0 if no limit on bytes is set, or if the follower has fetched more since
        #: (V62).
        self.bytes_behind = 0
        #: Broker epoch that came with the last fetch.
        self.broker_epoch = NO_BROKER_EPOCH
        #: Broker epoch of the last fetch that reached the high watermark. A proposal that adds the
        #: follower to the ISR carries `counted_broker_epoch` (V63).
        self.counted_broker_epoch = NO_BROKER_EPOCH
        #: Time before which the leader does not propose the follower for the ISR, because the
        #: controller refused it.
        self.refused_until_ms = NEVER_MS
        #: Whether the broker is alive, not fenced and not shutting down, by the leader's latest
        #: information.
        self.is_eligible = False
        #: Whether the follower counts for the high watermark (A8).
        self.in_maximal_isr = False
        #: Whether the follower is in the ISR that the leader last proposed, or else in the
        #: confirmed ISR.
        self.in_target_isr = False
        #: The reads for the follower's fetches; None if they do not keep the follower in sync (F5).
        self.reads: PendingReads | None = None
        #: The reads for the follower's fetches, for display; they are set even while `reads` is
        #: None.
        self.reads_shown: PendingReads | None = None
        #: Monotonic time at which the current `reads` replaced earlier reads or None; only reads
        #: for fetches that arrived since then keep the follower in sync.
        self.reads_since_ms = NEVER_MS
        #: Whether the last fetch reached the leader's LEO, or the LEO at the arrival of the
        #: previous fetch. `reached_previous_end` stays False while `reads` is None.
        self.reached_previous_end = False

    def fetched(
        self,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
        now_ms: int,
        reads: PendingReads | None = None,
    ) -> None:
        """Record a fetch (F2); `leader_end_offset` is the leader's LEO when the fetch arrives.

        `reads` are the follower's reads, None if they do not keep the follower in sync (F5).
        """
        if reads is not None or self.reads is not None:
            self._reads_for_fetch(fetch_offset, leader_end_offset, now_ms, reads)
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif (
            fetch_offset >= self.last_fetch_leader_end_offset
            and self.last_fetch_ms > self.last_caught_up_ms
        ):
            self.last_caught_up_ms = self.last_fetch_ms
        if fetch_offset != self.log_end_offset:
            # The bytes were computed for the former log end. A follower that has caught up would
            # otherwise leave the ISR as soon as it has joined.
            self.bytes_behind = 0
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def fetched_from(self, fetch_offset: int, is_synced: bool, flush_before_ack: bool) -> int:
        """Record the offset of a fetch; return the offset that the high watermark uses (V69).

        `is_synced` means that the follower has synced its log up to `fetch_offset`.
        """
        self.fetch_offset = fetch_offset
        self.synced_offset = synced_offsets.after_fetch(self.synced_offset, fetch_offset, is_synced)
        return synced_offsets.follower_end(fetch_offset, self.synced_offset, flush_before_ack)

    def recount(self, flush_before_ack: bool) -> None:
        """Let the high watermark use the follower's synced offset if `flush_before_ack`, else its
        log end (V69).
        """
        self.log_end_offset = synced_offsets.follower_end(
            self.fetch_offset, self.synced_offset, flush_before_ack
        )

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower is in sync by F3 (same LEO) or F4 (caught up recently)."""
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= max_lag_ms
        )

    # Pending reads.

    def has_pending_read(self, now_ms: int) -> bool:
        """Return whether the leader still reads from disk for a fetch of a follower that kept up
        (F5, F7).

        A follower with a pending read is in sync, because it waits for the leader. A pending read
        says nothing about the follower's log, so it has no influence on the high watermark (F8).
        """
        return (
            self.reads is not None
            and self.reached_previous_end
            and self.is_eligible
            and self.reads.is_pending(self.broker_epoch, self.reads_since_ms, now_ms)
        )

    def pending_reads(self, now_ms: int) -> int:
        """Return the number of the follower's fetches for which the leader still reads."""
        if self.reads_shown is None:
            return 0
        return self.reads_shown.count(self.broker_epoch, NEVER_MS, now_ms)

    def reads_since_ms_of_last_fetch(self) -> int:
        """Return when the last fetch arrived if the leader still reads for it from disk, else
        `NEVER_MS`.
        """
        if self.reads_shown is None:
            return NEVER_MS
        return self.reads_shown.reads_since_ms(self.broker_epoch, self.last_fetch_ms)

    def caught_up_ms(self) -> int:
        """Return the time at which the follower last was caught up (F2, F6)."""
        if self.reads is None or not self.reached_previous_end:
            return self.last_caught_up_ms
        done_ms = self.reads.done_ms(self.broker_epoch, self.last_fetch_ms)
        return max(self.last_caught_up_ms, done_ms)

    def is_in_sync(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower may stay in the ISR (F3 to F6).

        The follower may stay if it has the leader's whole log, waits for the leader's disk, or was
        caught up within `max_lag_ms`.
        """
        return (
            leader_end_offset == self.log_end_offset
            or self.has_pending_read(now_ms)
            or now_ms - self.caught_up_ms() <= max_lag_ms
        )

    def keep_reads(self, former: FollowerProgress, now_ms: int) -> None:
        """Copy the state of the pending reads that the leader began in its former epoch (F7).

        The new leadership does not adopt the follower's log end (V31). The response to a pending
        read has the former leader epoch, so the follower discards the response and repeats its
        fetch. The follower has kept up if its next fetch begins at or above the offset of its last
        fetch in the former epoch.
        """
        if former.reads is None:
            return
        self.reads, self.reads_since_ms = former.reads, former.reads_since_ms
        self.broker_epoch = former.broker_epoch
        self.reached_previous_end = former.reached_previous_end
        is_repeated = former.has_pending_read(now_ms) and former.log_end_offset != UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = (
            former.log_end_offset if is_repeated else former.last_fetch_leader_end_offset
        )

    def forget_reads(self) -> None:
        """Ignore the follower's pending reads from now on, but keep the time when the last read
        ended (F6).
        """
        self.last_caught_up_ms = self.caught_up_ms()
        self.reads = None
        self.reached_previous_end = False

    def _reads_for_fetch(
        self,
        fetch_offset: int,
        leader_end_offset: int,
        now_ms: int,
        reads: PendingReads | None,
    ) -> None:
        """Record the pending reads of an arriving fetch, before `fetched` records the fetch
        itself.
        """
        if reads is not self.reads:
            if self.reads is not None:
                self.forget_reads()
            self.reads = reads
            self.reads_since_ms = now_ms
        else:
            self.last_caught_up_ms = self.caught_up_ms()
        if reads is not None:
            reads.is_watched = True
            self.reached_previous_end = fetch_offset >= leader_end_offset or (
                fetch_offset >= self.last_fetch_leader_end_offset != UNKNOWN_OFFSET
            )

    # The following methods serve the model checker.

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value, for the model checker."""
        hidden = ("reads", "reads_shown")
        values = (getattr(self, name) for name in self.__slots__ if name not in hidden)
        return (*values, None if self.reads is None else self.reads.key())

    def copy(self) -> FollowerProgress:
        """Return an independent copy."""
        other = FollowerProgress(self.replica_id, self.last_caught_up_ms)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.reads = None if self.reads is None else self.reads.copy()
        if self.reads_shown is self.reads:
            other.reads_shown = other.reads
        elif self.reads_shown is not None:
            other.reads_shown = self.reads_shown.copy()
        return other
