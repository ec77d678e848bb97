"""One side of the throttle: who waits, and settings of several sources (R15)."""

from __future__ import annotations

from typing import Any

from tidelog.core.throttle_keys import UNLIMITED, ThrottledPartitions
from tidelog.core.types import TopicPartition
from tidelog.replication.throttle import MoveRates, SideThrottle, ThrottleSettings

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def some(*numbers: int) -> ThrottledPartitions:
    return ThrottledPartitions(numbers=frozenset(numbers))


def unlimited(moves: MoveRates | None = None) -> SideThrottle:
    return SideThrottle(3, 1_000, MoveRates() if moves is None else moves)


def limited(
    rate: int = 1_000, moves: MoveRates | None = None, **topics: ThrottledPartitions
) -> SideThrottle:
    throttle = unlimited(moves)
    assert throttle.configure(ThrottleSettings(rate, topics), 0)
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
    throttle = unlimited()
    throttle.record(1 << 40, 1 << 40, 0)
    assert not throttle.is_active
    assert not throttle.leaves_out(T0, False, 0)
    assert throttle.settings == ThrottleSettings()
    assert throttle.span_ms == 3_000


def test_the_same_settings_change_nothing() -> None:
    throttle = limited(t=some(0))
    assert not throttle.configure(ThrottleSettings(1_000, {"t": some(0)}), 0)
    assert throttle.configure(ThrottleSettings(), 0)
    assert not throttle.is_active
    assert throttle.rate == UNLIMITED
    assert not unlimited().configure(ThrottleSettings(), 0)


def test_settings_and_moves_throttle_together_at_the_lower_rate() -> None:
    moves = MoveRates()
    throttle = limited(5_000, moves, t=some(0))
    for each in (T1, U0):
        assert moves.put(each, 2_000)
    assert throttle.moves_changed(0)
    assert not throttle.moves_changed(0)
    assert throttle.rate == 2_000
    assert [throttle.is_throttled(each) for each in (T0, T1, U0)] == [True, True, True]
    for each in (T1, U0):
        assert moves.put(each, 0)
    assert throttle.moves_changed(0)
    assert throttle.rate == 5_000
    assert [throttle.is_throttled(each) for each in (T0, T1, U0)] == [True, False, False]
    assert throttle.settings.rate == 5_000


def test_moves_throttle_without_settings() -> None:
    moves = MoveRates()
    throttle = unlimited(moves)
    moves.put(T0, 10)
    assert throttle.moves_changed(0)
    assert throttle.is_active
    moves.put(T0, 0)
    assert throttle.moves_changed(0)
    assert not throttle.is_active


def test_the_lowest_rate_of_all_moves_counts_as_they_come_and_go() -> None:
    moves = MoveRates()
    assert moves.lowest == UNLIMITED
    lowest = []
    for partition, rate in ((T0, 30), (T1, 20), (U0, 20), (T1, 0), (U0, 40), (T0, 0), (U0, 0)):
        assert moves.put(partition, rate)
        assert not moves.put(partition, rate), "the same again is no news"
        lowest.append(moves.lowest)
    assert lowest == [30, 20, 20, 20, 30, 40, UNLIMITED]
    assert not moves
    assert T0 not in moves


def test_a_change_costs_the_same_with_thousands_of_moves() -> None:
    """The lowest rate is known without a look at the others."""

    class Looked(dict[TopicPartition, int]):
        def values(self) -> Any:
            raise AssertionError("every move is looked at")

        __iter__ = values

    moves = MoveRates()
    moves.rates = Looked()
    for number in range(2_000):
        moves.put(TopicPartition("t", number), 1_000 + number)
    assert moves.lowest == 1_000
    for number in range(2_000):
        moves.put(TopicPartition("t", number), 0)
    assert moves.lowest == UNLIMITED
