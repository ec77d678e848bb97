"""The rate of a throttle's bytes: its windows, its limit, and what is carried over (R15)."""

from __future__ import annotations

import random

import pytest

from tidelog.replication.byte_rate import ByteRate


def a_rate(limit: int | None = 1_000, windows: int = 3) -> ByteRate:
    """A rate over windows of a second, with a limit since 0."""
    rate = ByteRate(windows, 1_000)
    rate.limited(limit, 0)
    return rate


def test_a_rate_covers_the_time_since_its_oldest_window_at_least_one() -> None:
    rate = a_rate()
    assert rate.per_second(0) == 0
    rate.record(500, 0, 10)
    assert rate.per_second(10) == 500
    assert rate.per_second(1_010) == 500
    assert rate.per_second(2_010) == 250
    rate.record(1_500, 0, 2_010)
    assert rate.per_second(2_510) == 2_000 * 1_000 // 2_500
    assert rate.per_second(3_010) == 1_500
    assert rate.per_second(5_010) == 0


def test_bytes_of_one_window_are_counted_together() -> None:
    rate = a_rate(windows=2)
    rate.record(100, 0, 0)
    rate.record(100, 0, 999)
    assert rate.per_second(1_999) == 100
    assert rate.per_second(2_000) == 0


def test_a_limit_is_exceeded_above_it_and_not_at_it() -> None:
    rate = a_rate(1_000)
    assert not rate.is_exceeded(0)
    rate.record(1_000, 1_000, 0)
    assert not rate.is_exceeded(0)
    assert rate.is_exceeded(0, further=1)
    rate.record(1, 1, 0)
    assert rate.is_exceeded(1_000)
    assert not rate.is_exceeded(1_001)


def test_no_limit_is_never_exceeded() -> None:
    rate = a_rate(None)
    rate.record(1 << 40, 1 << 40, 0)
    assert not rate.is_exceeded(0, further=1 << 40)
    assert rate.recovers_in_ms(0) == 1
    assert rate.per_second(10_000) == 0


def test_a_limit_of_nothing_lets_one_read_pass() -> None:
    rate = a_rate(0)
    assert not rate.is_exceeded(0)
    rate.record(1, 1, 0)
    assert rate.is_exceeded(1_000_000)
    assert rate.recovers_in_ms(1_000_000) == rate.span_ms


def test_unpaid_bytes_of_held_replicas_outlive_their_window() -> None:
    rate = a_rate(1_000)
    rate.record(10_000, 10_000, 0)
    assert rate.recovers_in_ms(0) == rate.span_ms  # then it is looked at again
    assert rate.is_exceeded(9_999)
    assert not rate.is_exceeded(10_000)


def test_bytes_that_no_throttle_could_hold_back_are_forgotten() -> None:
    rate = a_rate(1_000)
    rate.record(10_000, 0, 0)
    assert rate.is_exceeded(2_999)
    assert not rate.is_exceeded(3_000)


def test_no_more_than_the_held_bytes_is_carried() -> None:
    rate = a_rate(1_000)
    rate.record(10_000, 2_000, 0)
    assert rate.is_exceeded(4_999)
    assert not rate.is_exceeded(5_000)


def test_later_windows_pay_for_earlier_ones() -> None:
    rate = a_rate(1_000)
    rate.record(4_000, 4_000, 0)
    rate.record(1, 0, 1_000)
    # The first window expires with 3,000 unpaid bytes; since the second began, 2,000 are paid.
    assert rate.is_exceeded(3_000)
    assert rate.is_exceeded(4_000)
    assert not rate.is_exceeded(4_001)


def test_another_limit_forgets_what_was_carried() -> None:
    rate = a_rate(1_000)
    rate.record(100_000, 100_000, 0)
    assert rate.is_exceeded(5_000)
    rate.limited(2_000, 5_000)
    assert not rate.is_exceeded(5_000)
    rate.limited(1_000, 6_000)
    rate.limited(1_000, 7_000)
    assert not rate.is_exceeded(7_000)


def test_bytes_from_before_a_limit_last_as_long_as_the_windows() -> None:
    rate = a_rate(None)
    rate.record(100_000, 100_000, 0)
    rate.limited(1_000, 500)
    assert rate.is_exceeded(500)
    assert rate.recovers_in_ms(500) == 2_500
    assert not rate.is_exceeded(3_000)


def test_it_recovers_when_it_says() -> None:
    rate = a_rate(1_000)
    rate.record(1_500, 1_500, 0)
    rate.record(700, 700, 1_100)
    assert rate.is_exceeded(1_100)
    wait_ms = rate.recovers_in_ms(1_100)
    assert rate.is_exceeded(1_100 + wait_ms - 1)
    assert not rate.is_exceeded(1_100 + wait_ms)


@pytest.mark.parametrize("seed", range(20))
def test_it_recovers_when_it_says_whatever_was_recorded(seed: int) -> None:
    draw = random.Random(seed)
    rate = a_rate(draw.choice((100, 1_000, 7_777)), draw.randrange(1, 6))
    now_ms = 0
    for _ in range(100):
        now_ms += draw.choice((0, 1, 50, 999, 1_000, 2_500))
        count = draw.randrange(3_000)
        rate.record(count, draw.randrange(count + 1), now_ms)
        if rate.is_exceeded(now_ms):
            wait_ms = rate.recovers_in_ms(now_ms)
            assert 1 <= wait_ms <= rate.span_ms
            if draw.random() < 0.3:
                now_ms += wait_ms
                assert not rate.is_exceeded(now_ms) or wait_ms == rate.span_ms


@pytest.mark.parametrize("seed", range(20))
def test_held_bytes_stay_within_the_limit_the_windows_and_one_read(seed: int) -> None:
    """Others, which nothing holds back, come in between and take their share."""
    draw = random.Random(seed)
    limit, windows = draw.choice((200, 1_000, 5_000)), draw.randrange(1, 5)
    rate = a_rate(limit, windows)
    now_ms, level, largest = 0, 0.0, 0
    for _ in range(500):
        step_ms = draw.choice((1, 10, 100, 700, 3_000))
        now_ms += step_ms
        level = max(0.0, level - limit * step_ms / 1_000)
        if draw.random() < 0.3:
            rate.record(draw.randrange(2_000), 0, now_ms)
        elif not rate.is_exceeded(now_ms):
            count = draw.randrange(1, 4_000)
            rate.record(count, count, now_ms)
            largest = max(largest, count)
            level += count
            assert level <= limit * windows + largest + 1
