"""The high watermark: the offset after the last committed record (V60, V61).

The high watermark is the smallest LEO of the members of the maximal ISR, and of caught-up replicas
that are about to join. If the high watermark did not wait for these replicas, a follower that is
always one batch behind could never reach it and join. The high watermark does not move while the
confirmed ISR is below the effective minimum. This module is pure arithmetic over progress objects;
it is called for every follower fetch, so it allocates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.replication.progress import FollowerProgress


def effective_minimum(min_insync_replicas: int, replica_count: int) -> int:
    """Return `min.insync.replicas`, limited to the number of replicas (V60)."""
    return min_insync_replicas if min_insync_replicas < replica_count else replica_count


def high_watermark(
    log_end_offset: int, followers: Sequence[FollowerProgress], now_ms: int, max_lag_ms: int
) -> int:
    """Return the high watermark: the lowest log end of the replicas that it must wait for.

    Returns -1 if a replica's log end is unknown. `log_end_offset` is the leader's log end. The
    leader decides whether to adopt the returned offset as high watermark.
    """
    lowest = log_end_offset
    for follower in followers:
        if follower.log_end_offset < lowest and (
            follower.in_maximal_isr
            or (follower.is_eligible and follower.is_caught_up(log_end_offset, now_ms, max_lag_ms))
        ):
            lowest = follower.log_end_offset
    return lowest


def on_follower(leader_high_watermark: int, log_start_offset: int, log_end_offset: int) -> int:
    """Return a follower's high watermark: the leader's, limited to the follower's own log (V61)."""
    return max(log_start_offset, min(leader_high_watermark, log_end_offset))
