"""Follower progress as the leader sees it: where a follower's log ends, since when it has kept up.

Holds F1 to F4. A follower is caught up at the time of a fetch whose offset reaches the leader's
current LEO. It was caught up at the time of its previous fetch if the offset reaches the LEO of
that time. So a follower that is always a little behind a busy leader stays in sync. Times are
monotonic milliseconds of the leader's own clock. Does not know the ISR. Three flags that the leader
sets cache what the hot path needs to know of it.
"""

from __future__ import annotations

from tidelog.core.types import NO_BROKER_EPOCH

#: The follower has not fetched in this leadership: its log is unknown.
UNKNOWN_OFFSET = -1
#: Longer ago than any lag limit.
NEVER_MS = -(1 << 62)


class FollowerProgress:
    """One follower as its leader sees it (F1)."""

    __slots__ = (
        "broker_epoch",
        "bytes_behind",
        "counted_broker_epoch",
        "in_maximal_isr",
        "in_target_isr",
        "is_eligible",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "last_refused_ms",
        "log_end_offset",
        "log_start_offset",
        "refused_until_ms",
        "replica_id",
    )

    def __init__(self, replica_id: int, last_caught_up_ms: int) -> None:
        self.replica_id = replica_id
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        #: The leader's LEO when the last fetch arrived.
        self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = last_caught_up_ms
        #: When the leader last refused a fetch because of its leader epoch or broker epoch.
        self.last_refused_ms = NEVER_MS
        #: Bytes of the leader's log beyond the follower's end, as last computed; 0 where they are
        #: not computed (V62).
        self.bytes_behind = 0
        #: Broker epoch that came with the last fetch.
        self.broker_epoch = NO_BROKER_EPOCH
        #: Broker epoch of the last fetch that reached the high watermark. The leader proposes the
        #: follower for the ISR under this epoch (V63).
        self.counted_broker_epoch = NO_BROKER_EPOCH
        #: The controller refused it as a member of the ISR; the leader does not propose it before
        #: this time.
        self.refused_until_ms = NEVER_MS
        #: Alive and neither fenced nor shutting down, by the leader's latest information.
        self.is_eligible = False
        #: Counts for the high watermark (A8).
        self.in_maximal_isr = False
        #: A member of the ISR that the leader wants: there is no change to propose for it.
        self.in_target_isr = False

    def fetched(
        self,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
        now_ms: int,
    ) -> None:
        """Note a fetch (F2); `leader_end_offset` is the leader's LEO when the fetch arrives."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif (
            fetch_offset >= self.last_fetch_leader_end_offset
            and self.last_fetch_ms > self.last_caught_up_ms
        ):
            self.last_caught_up_ms = self.last_fetch_ms
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower is in sync by F3 (same LEO) or F4 (caught up recently)."""
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= max_lag_ms
        )

    def key(self) -> tuple[int | bool, ...]:
        """Return the whole state as a value."""
        return tuple(getattr(self, name) for name in self.__slots__)

    def copy(self) -> FollowerProgress:
        """Return an independent copy."""
        other = FollowerProgress(self.replica_id, self.last_caught_up_ms)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other
