"""One side of the throttle: who waits, and settings of several sources (R15)."""

from __future__ import annotations

from tidelog.core.throttle_keys import UNLIMITED, ThrottledPartitions
from tidelog.core.types import TopicPartition
from tidelog.replication.throttle import SideThrottle, ThrottleSettings

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def some(*numbers: int) -> ThrottledPartitions:
    return ThrottledPartitions(numbers=frozenset(numbers))


def limited(rate: int = 1_000, **topics: ThrottledPartitions) -> SideThrottle:
    throttle = SideThrottle(3, 1_000)
    assert throttle.configure("configured", ThrottleSettings(rate, topics), 0)
    return throttle


def test_only_a_throttled_replica_out_of_sync_waits_and_only_above_the_rate() -> None:
    throttle = limited(t=some(0))
    assert not throttle.leaves_out(T0, False, 0)
    assert throttle.leaves_out(T0, False, 0, further_bytes=1_001)
    throttle.record(2_000, 2_000, 0)
    assert throttle.is_exceeded(0)
    assert throttle.leaves_out(T0, False, 0)
    assert not throttle.leaves_out(T0, True, 0)
    assert not throttle.leaves_out(T1, False, 0)
    assert throttle.recovers_in_ms(0) == 2_000
    assert not throttle.leaves_out(T0, False, 2_000)
    assert throttle.byte_rate(2_000) == 1_000


def test_all_partitions_of_a_topic_may_be_throttled() -> None:
    throttle = limited(t=ThrottledPartitions(is_all=True))
    assert [throttle.is_throttled(each) for each in (T0, T1, U0)] == [True, True, False]


def test_without_settings_nothing_waits() -> None:
    throttle = SideThrottle(3, 1_000)
    throttle.record(1 << 40, 1 << 40, 0)
    assert not throttle.is_active
    assert not throttle.leaves_out(T0, False, 0)
    assert throttle.settings("configured") == ThrottleSettings()
    assert throttle.span_ms == 3_000


def test_the_same_settings_change_nothing() -> None:
    throttle = limited(t=some(0))
    assert not throttle.configure("configured", ThrottleSettings(1_000, {"t": some(0)}), 0)
    assert throttle.configure("configured", ThrottleSettings(), 0)
    assert not throttle.is_active
    assert throttle.rate == UNLIMITED
    assert not SideThrottle(1, 1).configure("configured", ThrottleSettings(), 0)


def test_two_sources_throttle_together_at_the_lower_rate() -> None:
    throttle = limited(5_000, t=some(0))
    moves = ThrottleSettings(2_000, {"t": some(1), "u": some(0)})
    assert throttle.configure("moves", moves, 0)
    assert throttle.rate == 2_000
    assert [throttle.is_throttled(each) for each in (T0, T1, U0)] == [True, True, True]
    assert throttle.configure("moves", ThrottleSettings(), 0)
    assert throttle.rate == 5_000
    assert [throttle.is_throttled(each) for each in (T0, T1, U0)] == [True, False, False]
    assert throttle.settings("configured").rate == 5_000
