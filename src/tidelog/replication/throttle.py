"""One side of the replication throttle: which replicas wait, and until when (R15, KIP-73).

A broker has two: the leader's side counts what it sends to followers, the follower's side what it
fetches. Only a replica outside the ISR of a throttled partition waits, and only while the side is
above its rate. The rate is looked at before each read, so one read may exceed it. Settings come
from several sources, each by its name: a partition is throttled if any source says so, and the
lowest rate counts. Knows no request and no log; the time is an argument, in monotonic milliseconds.
Source: ReplicationQuotaManager, ReplicaManager.shouldLeaderThrottle,
ReplicaFetcherThread.shouldFollowerThrottle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.core.throttle_keys import UNLIMITED, ThrottledPartitions
from tidelog.core.types import TopicPartition
from tidelog.replication.byte_rate import ByteRate


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """What one source says about one side."""

    #: Bytes a second; `UNLIMITED` for no limit.
    rate: int = UNLIMITED
    #: The throttled partitions by topic; topics without any are left out.
    topics: Mapping[str, ThrottledPartitions] = field(default_factory=dict)


class SideThrottle:
    """The throttle of one side of one broker."""

    __slots__ = ("_bytes", "_settings", "rate")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._bytes = ByteRate(windows, window_ms)
        self._settings: dict[str, ThrottleSettings] = {}
        #: The lowest rate of all sources, in bytes a second.
        self.rate = UNLIMITED

    @property
    def span_ms(self) -> int:
        """The time over which the rate is measured."""
        return self._bytes.span_ms

    def configure(self, source: str, settings: ThrottleSettings, now_ms: int) -> bool:
        """Take the settings of a source; return whether they differ from what it said before."""
        if settings == self._settings.get(source, ThrottleSettings()):
            return False
        self._settings[source] = settings
        self.rate = min(each.rate for each in self._settings.values())
        self._bytes.limited(None if self.rate == UNLIMITED else self.rate, now_ms)
        return True

    def settings(self, source: str) -> ThrottleSettings:
        """Return the settings of a source, those without a throttle where it has none."""
        return self._settings.get(source, ThrottleSettings())

    @property
    def is_active(self) -> bool:
        """Whether any partition is throttled, at whatever rate."""
        return any(each.topics for each in self._settings.values())

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Return whether a source throttles the partition."""
        topic, number = topic_partition
        return any(
            topic in each.topics and number in each.topics[topic]
            for each in self._settings.values()
        )

    def leaves_out(
        self,
        topic_partition: TopicPartition,
        is_in_sync: bool,
        now_ms: int,
        further_bytes: int = 0,
    ) -> bool:
        """Return whether a replica must wait: it is throttled, out of sync, the rate exceeded.

        `further_bytes` were read for throttled partitions and are not recorded yet.
        """
        return (
            not is_in_sync
            and self.is_throttled(topic_partition)
            and self._bytes.is_exceeded(now_ms, further_bytes)
        )

    def is_exceeded(self, now_ms: int) -> bool:
        """Return whether replicas wait now."""
        return self._bytes.is_exceeded(now_ms)

    def recovers_in_ms(self, now_ms: int) -> int:
        """Return when replicas wait no longer unless bytes are recorded (`ByteRate`)."""
        return self._bytes.recovers_in_ms(now_ms)

    def record(self, count: int, out_of_sync_count: int, now_ms: int) -> None:
        """Count bytes of throttled partitions; `out_of_sync_count` of them for replicas outside."""
        self._bytes.record(count, out_of_sync_count, now_ms)

    def byte_rate(self, now_ms: int) -> int:
        """Return the measured rate in bytes a second, the metric `byte-rate` of Kafka."""
        return self._bytes.per_second(now_ms)
