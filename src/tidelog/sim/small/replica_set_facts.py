"""What followers have shown their leader, by the definitions of F1 to F7, V63 and V69.

The small world of replicas keeps these facts beside the decisions of `tidelog.replication`, and the
reference compares both.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.sim.small.replica_set_brokers import SmallBroker
from tidelog.sim.small.replica_set_values import SOCKET_TIMEOUT_MS, SmallFetch

#: A time that lies further in the past than any time limit.
LONG_AGO_MS: Final = -1_000
#: The value for a log end that is not known.
UNKNOWN: Final = -1


class FollowerFacts:
    """What one follower's fetches have shown the leader in one leadership, by the definitions of F1
    to F7.
    """

    __slots__ = (
        "caught_up_ms",
        "connection",
        "counted_epoch",
        "done_ms",
        "end",
        "fetch_offset",
        "fetched_ms",
        "kept_up",
        "newest_epoch",
        "previous_end",
        "read_since_ms",
        "synced",
    )

    def __init__(self, caught_up_ms: int, previous_end: int) -> None:
        self.caught_up_ms = caught_up_ms
        #: The leader's log end when the follower's last fetch arrived.
        self.previous_end = previous_end
        #: The offset of the last fetch.
        self.fetch_offset = UNKNOWN
        #: The offset up to which the follower has said that its log is synced.
        self.synced = UNKNOWN
        #: Either `fetch_offset` or `synced`: the offset that the leader counts as the follower's
        #: log end (V69).
        self.end = UNKNOWN
        self.fetched_ms = LONG_AGO_MS
        #: Whether the last fetch reached the leader's log end, or the log end at the time of the
        #: fetch before it (F5).
        self.kept_up = False
        #: The connection of the follower's last fetch. `read_since_ms` is the arrival time of the
        #: fetch for which the leader reads from its disk; -1 if the leader reads for no fetch.
        self.connection: tuple[int, int] = (0, 0)
        self.read_since_ms = -1
        #: Time at which the leader's disk read for the last fetch ended.
        self.done_ms = LONG_AGO_MS
        #: Broker epoch of the last fetch that had every committed record, and all records of
        #: earlier leader epochs (V63).
        self.counted_epoch = NO_BROKER_EPOCH
        #: The newest broker epoch in the follower's fetches.
        self.newest_epoch = NO_BROKER_EPOCH

    def copy(self) -> FollowerFacts:
        """Return an independent copy."""
        other = FollowerFacts(self.caught_up_ms, self.previous_end)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def fetched(
        self, fetch: SmallFetch, broker: SmallBroker, connection: tuple[int, int], now_ms: int
    ) -> None:
        """Note a fetch of the follower that counts as progress (F2, V69)."""
        offset, leader_end = fetch.position.fetch_offset, len(broker.log)
        self.fetch_offset = offset
        if fetch.is_synced or offset < self.synced:
            self.synced = offset
        end = self.synced if broker.flushes else offset
        self.kept_up = end >= leader_end or (
            self.previous_end != UNKNOWN and end >= self.previous_end
        )
        if end >= leader_end:
            self.caught_up_ms = now_ms
        elif end >= self.previous_end and self.fetched_ms > self.caught_up_ms:
            self.caught_up_ms = self.fetched_ms
        self.end, self.previous_end, self.fetched_ms = end, leader_end, now_ms
        self.connection, self.read_since_ms, self.done_ms = connection, -1, LONG_AGO_MS
        self.newest_epoch = fetch.broker_epoch

    def has_pending_read(self, now_ms: int) -> bool:
        """Return whether a read for this follower is under way that keeps it in sync (F5, F7)."""
        age_ms = now_ms - self.read_since_ms
        return self.kept_up and self.read_since_ms >= 0 and age_ms <= SOCKET_TIMEOUT_MS


class LeadershipFacts:
    """What the reference knows of one leadership: its followers, and its high watermark."""

    __slots__ = ("followers", "high_watermark", "is_continued", "leader_epoch", "target")

    def __init__(self, leader_epoch: int, high_watermark: int, target: tuple[int, ...]) -> None:
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        #: The ISR that the leader wanted to have after the last step.
        self.target = target
        self.followers: dict[int, FollowerFacts] = {}
        #: Whether the same broker led in the leader epoch before, and continues the reads under way
        #: (F7).
        self.is_continued = False

    def copy(self) -> LeadershipFacts:
        """Return an independent copy."""
        other = LeadershipFacts(self.leader_epoch, self.high_watermark, self.target)
        other.followers = {number: facts.copy() for number, facts in self.followers.items()}
        other.is_continued = self.is_continued
        return other
