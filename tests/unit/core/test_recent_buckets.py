"""Quantiles and rates of the last minutes."""

from __future__ import annotations

from tidelog.core.recent_buckets import Rate, RecentBuckets, quantiles

BOUNDS = (10, 100, 1_000)


def test_quantiles_are_interpolated_in_their_bucket() -> None:
    assert quantiles(BOUNDS, [0, 10, 0, 0], (0.5, 1.0)) == [55, 100]
    assert quantiles(BOUNDS, [5, 5, 0, 0], (0.5, 0.75)) == [10, 55]
    assert quantiles(BOUNDS, [0, 0, 0, 3], (0.5,)) == [1_000], "the last bucket has no bound"
    assert quantiles(BOUNDS, [0, 0, 0, 0], (0.5, 0.99)) == [0, 0]


def test_old_observations_count_no_more_after_some_minutes() -> None:
    recent = RecentBuckets()
    assert recent.of([5, 0], 0) == [5, 0]
    assert recent.of([6, 0], 60_000) == [6, 0]
    assert recent.of([7, 1], 120_000) == [7, 1]
    assert recent.of([7, 2], 240_000) == [0, 1], "since 120,000"
    assert recent.of([7, 4], 300_000) == [0, 3]
    assert recent.of([7, 4], 360_000) == [0, 2], "since 240,000"


def test_a_rate_is_that_of_the_last_minutes() -> None:
    rate = Rate(0)
    assert rate.thousandths(10, 10_000) == 1_000
    assert rate.thousandths(120, 120_000) == 1_000
    assert rate.thousandths(120, 240_000) == 0
