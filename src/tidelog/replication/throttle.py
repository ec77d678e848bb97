"""One side of the replication throttle: which replicas it delays, and for how long (R15, KIP-73).

A broker has two sides of the throttle: the leader's side counts bytes sent to followers, the
follower's side counts bytes fetched. The throttle delays only replicas of throttled partitions that
are outside the ISR, and only while the bytes of its side exceed its rate. The throttle checks the
rate before each read, so one read may exceed the rate. An administrator sets a rate and the
partitions to throttle; a reassignment throttles its own partition with its own rate. One side has
one rate for all its throttled partitions: the lowest of the administrator's rate and the rates of
reassignments. The throttle does not know requests or logs; the time is an argument, in monotonic
milliseconds. Source: ReplicationQuotaManager, ReplicaManager.shouldLeaderThrottle,
ReplicaFetcherThread.shouldFollowerThrottle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from heapq import heappop, heappush

from tidelog.core.dataclass import dataclass
from tidelog.core.throttle_keys import UNLIMITED, ThrottledPartitions
from tidelog.core.types import TopicPartition
from tidelog.replication.byte_rate import ByteRate


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """The configured rate and partitions of the leader's or the follower's side of the throttle."""

    #: Bytes a second; `UNLIMITED` for no limit.
    rate: int = UNLIMITED
    #: The throttled partitions by topic; topics without throttled partitions are left out.
    topics: Mapping[str, ThrottledPartitions] = field(default_factory=dict)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        topic, number = topic_partition
        return topic in self.topics and number in self.topics[topic]


class MoveRates:
    """The rates of reassignments by partition; both sides of the throttle use the lowest rate (R4).

    Thousands of reassignments may end one by one, so the cost of a change does not grow with their
    number.
    """

    __slots__ = ("_counts", "_order", "rates")

    def __init__(self) -> None:
        #: The rate of each partition's reassignment, in bytes a second.
        self.rates: dict[TopicPartition, int] = {}
        #: Number of reassignments by rate; `_order` is a heap of these rates.
        self._counts: Counter[int] = Counter()
        self._order: list[int] = []

    def put(self, topic_partition: TopicPartition, rate: int) -> bool:
        """Set the rate of a partition, 0 for none; return whether the rate changed."""
        before = self.rates.pop(topic_partition, 0)
        if rate:
            self.rates[topic_partition] = rate
        if rate == before:
            return False
        if before:
            self._counts[before] -= 1
        if rate:
            if not self._counts[rate]:
                heappush(self._order, rate)
            self._counts[rate] += 1
        while self._order and not self._counts[self._order[0]]:
            del self._counts[heappop(self._order)]
        return True

    @property
    def lowest(self) -> int:
        """The lowest rate of all reassignments; `UNLIMITED` if none has a rate."""
        return self._order[0] if self._order else UNLIMITED

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.rates

    def __bool__(self) -> bool:
        return bool(self.rates)


class SideThrottle:
    """The throttle of one side of a broker: the leader's or the follower's."""

    __slots__ = ("_bytes", "_moves", "rate", "settings")

    def __init__(self, windows: int, window_ms: int, moves: MoveRates) -> None:
        """`moves` has the rates of reassignments, which apply after `moves_changed` was called."""
        self._bytes = ByteRate(windows, window_ms)
        self._moves = moves
        #: The administrator's settings.
        self.settings = ThrottleSettings()
        #: The lowest rate that the settings or any reassignment demands, in bytes a second.
        self.rate = UNLIMITED

    @property
    def span_ms(self) -> int:
        """The time in ms over which the rate is measured."""
        return self._bytes.span_ms

    def configure(self, settings: ThrottleSettings, now_ms: int) -> bool:
        """Apply an administrator's settings; return whether they changed."""
        if settings == self.settings:
            return False
        self.settings = settings
        self._limit(now_ms)
        return True

    def moves_changed(self, now_ms: int) -> bool:
        """Apply the rates of reassignments; return whether the lowest rate changed."""
        before = self.rate
        self._limit(now_ms)
        return self.rate != before

    def _limit(self, now_ms: int) -> None:
        self.rate = min(self.settings.rate, self._moves.lowest)
        self._bytes.limited(None if self.rate == UNLIMITED else self.rate, now_ms)

    @property
    def is_active(self) -> bool:
        """Whether any partition is throttled."""
        return bool(self.settings.topics or self._moves.rates)

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Return whether a setting or a reassignment throttles the partition."""
        return topic_partition in self._moves or topic_partition in self.settings

    def leaves_out(
        self,
        topic_partition: TopicPartition,
        is_in_sync: bool,
        now_ms: int,
        further_bytes: int = 0,
    ) -> bool:
        """Return whether a replica must wait: it is throttled, and this side exceeds its rate.

        A replica in the ISR never waits. `further_bytes` is the number of bytes that
        were read for throttled partitions but are not recorded yet.
        """
        return (
            not is_in_sync
            and self.is_throttled(topic_partition)
            and self._bytes.is_exceeded(now_ms, further_bytes)
        )

    def is_exceeded(self, now_ms: int) -> bool:
        """Return whether throttled replicas outside the ISR wait now."""
        return self._bytes.is_exceeded(now_ms)

    def recovers_in_ms(self, now_ms: int) -> int:
        """Return after how many ms throttled replicas may go on, if no more bytes are counted."""
        return self._bytes.recovers_in_ms(now_ms)

    def record(self, count: int, out_of_sync_count: int, now_ms: int) -> None:
        """Count bytes of throttled partitions.

        `out_of_sync_count` is the part of the bytes that belongs to replicas outside the ISR.
        """
        self._bytes.record(count, out_of_sync_count, now_ms)

    def byte_rate(self, now_ms: int) -> int:
        """Return the measured rate in bytes a second, Kafka's metric `byte-rate`."""
        return self._bytes.per_second(now_ms)
