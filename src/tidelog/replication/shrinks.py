"""Causes for which a leader removes a member from the ISR (V62, F1 to F4).

A removed member has one cause, the first that applies in this order: refused fetches, slow reads of
the leader's own disk, missing fetches, slow fetches. This module decides nothing: `isr.must_leave`
decides which members leave.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.replication.progress import NEVER_MS, FollowerProgress


@dataclass(frozen=True, slots=True)
class IsrShrink:
    """A member that a change removes from the ISR, with the cause, and the lag at the removal."""

    replica_id: int
    cause: ShrinkCause
    #: Time since the follower was last caught up; -1 if it never was. For NO_FETCH, the time counts
    #: from the last fetch; for LEADER_READ, from the fetch for which the leader reads.
    behind_ms: int = -1
    #: Number of records that the follower lacks; -1 if its log end is not known.
    behind_records: int = -1


def shrink_of(
    follower: FollowerProgress, leader_end_offset: int, now_ms: int, max_lag_ms: int
) -> IsrShrink:
    """Return the cause for which a follower that is out of sync must leave the ISR."""
    records = leader_end_offset - follower.log_end_offset if follower.log_end_offset >= 0 else -1
    if follower.last_refused_ms > follower.last_fetch_ms and (
        now_ms - follower.last_refused_ms <= max_lag_ms
    ):
        cause, since_ms = ShrinkCause.EPOCH, follower.last_caught_up_ms
    elif (reads_since_ms := follower.reads_since_ms_of_last_fetch()) != NEVER_MS and (
        now_ms - reads_since_ms > max_lag_ms // 2
    ):
        # The follower waits for the leader's slow read: it cannot send its next fetch before the
        # response to its last fetch (KIP-501).
        cause, since_ms = ShrinkCause.LEADER_READ, reads_since_ms
    elif now_ms - follower.last_fetch_ms > max_lag_ms:
        cause = ShrinkCause.NO_FETCH
        # For a follower that never fetched from this leader, the time counts from the beginning of
        # its grace period.
        since_ms = max(follower.last_fetch_ms, follower.last_caught_up_ms)
    else:
        cause, since_ms = ShrinkCause.SLOW, follower.last_caught_up_ms
    behind_ms = -1 if since_ms == NEVER_MS else max(0, now_ms - since_ms)
    return IsrShrink(follower.replica_id, cause, behind_ms, records)


def describe(shrink: IsrShrink, max_lag_ms: int) -> str:
    """Return the cause of a shrink, with how far the member is behind, as text for the log."""
    behind_ms = f"{shrink.behind_ms:,} ms (limit {max_lag_ms:,})"
    if shrink.cause is ShrinkCause.NO_FETCH:
        return f"no fetch for {behind_ms}"
    if shrink.cause is ShrinkCause.LEADER_READ:
        return f"the leader's disk has been reading for its fetch for {behind_ms}"
    if shrink.cause is ShrinkCause.EPOCH:
        return f"its fetches are of another epoch; not caught up for {behind_ms}"
    records = f"{shrink.behind_records:,} records behind, " if shrink.behind_records >= 0 else ""
    return f"{records}not caught up for {behind_ms}"
