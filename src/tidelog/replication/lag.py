"""How far a follower is behind its leader, in records and in time (F1 to F4).

A follower that has the leader's whole log has no lag, even if its last fetch is long ago (F3).
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.replication.progress import NEVER_MS, FollowerProgress


class Progress(NamedTuple):
    """How far a follower is behind its leader at one moment; -1 stands for an unknown value."""

    lag_records: int
    #: Time since the follower was last caught up.
    lag_ms: int
    since_fetch_ms: int
    #: Number of the follower's fetches for which the leader is reading from its disk.
    pending_reads: int = 0


def progress_of(follower: FollowerProgress, leader_end_offset: int, now_ms: int) -> Progress:
    """Return how far a follower is behind now; `now_ms` is the leader's monotonic clock."""
    since_fetch_ms = _since(follower.last_fetch_ms, now_ms)
    if follower.log_end_offset < 0:
        # The follower has not fetched in this leadership, so its progress is unknown. An ISR member
        # may still be in its grace period (V31).
        return Progress(-1, -1, since_fetch_ms, follower.pending_reads(now_ms))
    lag_records = max(0, leader_end_offset - follower.log_end_offset)
    lag_ms = _since(follower.caught_up_ms(), now_ms) if lag_records else 0
    return Progress(lag_records, lag_ms, since_fetch_ms, follower.pending_reads(now_ms))


def _since(moment_ms: int, now_ms: int) -> int:
    return -1 if moment_ms == NEVER_MS else max(0, now_ms - moment_ms)
