"""Measurement of a failover's last phases, from the new leader's election to its first commit
(V80).

One object measures one leadership, from the moment at which the broker took the role of leader. For
each follower, the object records the times of three events. The three events are the follower's
first request under the new leader epoch, the first response about a diverging log, and the first
fetch with a matching log. The object also records when the first record of the new epoch was
committed; from then on the leader acknowledges Produce requests with acks=all. Times are arguments,
in ms of a clock that never goes back. No decision of the replica depends on these measurements.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Value for the time of an event that has not happened.
NEVER: Final = -1
#: The following constants name the phases of a takeover, in the order in which they can end.
CONNECT: Final = "connect"
TRUNCATE: Final = "truncate"
FIRST_FETCH: Final = "first_fetch"
ACKNOWLEDGE: Final = "acknowledge"
PHASES: Final = (CONNECT, TRUNCATE, FIRST_FETCH, ACKNOWLEDGE)


class FollowerTimes:
    """Times of one follower in ms since the leader took its role; NEVER for a missing event."""

    __slots__ = ("connected_ms", "diverged_ms", "fetched_ms")

    def __init__(self, connected_ms: int) -> None:
        self.connected_ms = connected_ms
        #: When the leader first responded that the follower's log diverges.
        self.diverged_ms = NEVER
        #: When the follower first fetched with a log that matches the leader's.
        self.fetched_ms = NEVER


class Takeover:
    """Measurement of a new leader's takeover, until every phase has ended."""

    __slots__ = ("_begun_ms", "acknowledged_ms", "epoch_start_offset", "followers", "leader_epoch")

    def __init__(self, leader_epoch: int, epoch_start_offset: int, now_ms: int) -> None:
        self.leader_epoch = leader_epoch
        #: Start offset of the leader epoch; committed records from this offset on are of this
        #: leadership.
        self.epoch_start_offset = epoch_start_offset
        self._begun_ms = now_ms
        self.followers: dict[int, FollowerTimes] = {}
        self.acknowledged_ms = NEVER

    def age_ms(self, now_ms: int) -> int:
        """Return how long the leader has had its role, in ms."""
        return now_ms - self._begun_ms

    def connected(self, replica_id: int, now_ms: int) -> FollowerTimes:
        """Record that a follower has sent a request under this leader epoch."""
        times = self.followers.get(replica_id)
        if times is None:
            times = self.followers[replica_id] = FollowerTimes(now_ms - self._begun_ms)
        return times

    def diverged(self, replica_id: int, now_ms: int) -> None:
        """Record the response that a follower's log diverges and must be truncated (V32)."""
        times = self.connected(replica_id, now_ms)
        if times.diverged_ms == NEVER:
            times.diverged_ms = now_ms - self._begun_ms

    def fetched(self, replica_id: int, now_ms: int) -> bool:
        """Record a follower's fetch with a matching log; return whether no follower did so
        before.
        """
        times = self.connected(replica_id, now_ms)
        if times.fetched_ms != NEVER:
            return False
        is_first = all(other.fetched_ms == NEVER for other in self.followers.values())
        times.fetched_ms = now_ms - self._begun_ms
        return is_first

    def committed(self, high_watermark: int, now_ms: int) -> None:
        """Record that the high watermark has moved."""
        if self.acknowledged_ms == NEVER and high_watermark > self.epoch_start_offset:
            self.acknowledged_ms = now_ms - self._begun_ms

    def is_over(self, awaited: Iterable[int]) -> bool:
        """Return whether every phase has ended; `awaited` are the live followers."""
        if self.acknowledged_ms == NEVER:
            return False
        if any(self._is_truncating(times) for times in self.followers.values()):
            return False
        followers = self.followers
        return all(
            replica_id in followers and followers[replica_id].fetched_ms != NEVER
            for replica_id in awaited
        )

    @staticmethod
    def _is_truncating(times: FollowerTimes) -> bool:
        return times.diverged_ms != NEVER and times.fetched_ms == NEVER

    def phases_ms(self) -> dict[str, int]:
        """Return when each phase ended, in ms since the leader took its role.

        NEVER stands for a phase that has not ended, or did not take place. The phase `connect` ends
        when the last of the followers has sent its first request. The phase `truncate` ends when
        the last follower that had to truncate its log has fetched again.
        """
        followers = self.followers.values()
        fetched = [times.fetched_ms for times in followers if times.fetched_ms != NEVER]
        cut = [times for times in followers if times.diverged_ms != NEVER]
        has_cut = not any(self._is_truncating(times) for times in cut)
        return {
            CONNECT: max((times.connected_ms for times in followers), default=NEVER),
            TRUNCATE: max((times.fetched_ms for times in cut), default=NEVER) if has_cut else NEVER,
            FIRST_FETCH: min(fetched, default=NEVER),
            ACKNOWLEDGE: self.acknowledged_ms,
        }
