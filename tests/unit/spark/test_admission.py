"""How much a micro-batch takes."""

from __future__ import annotations

import pytest

from tidelog.core.types import TopicPartition
from tidelog.spark.streaming.admission import BatchDelay, count_waiting, limit_offsets

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_the_limit_is_split_in_proportion_to_what_waits() -> None:
    ends = limit_offsets(100, {A: 0, B: 10, C: 5}, {A: 300, B: 110, C: 5})
    assert ends == {A: 75, B: 35, C: 5}


def test_shares_are_rounded_down_but_a_small_partition_is_not_starved() -> None:
    ends = limit_offsets(10, {A: 0, B: 0, C: 0}, {A: 1_000_000, B: 1, C: 350_000})
    assert ends == {A: 7, B: 1, C: 2}


def test_a_share_never_passes_the_end() -> None:
    assert limit_offsets(1000, {A: 0, B: 7}, {A: 4, B: 9}) == {A: 4, B: 9}


def test_nothing_waits() -> None:
    assert limit_offsets(5, {A: 4}, {A: 4}) == {A: 4}
    assert limit_offsets(5, {}, {}) == {}


def test_an_end_below_its_start_is_kept_and_counts_nothing() -> None:
    starts, ends = {A: 100, B: 0}, {A: 0, B: 40}
    assert limit_offsets(10, starts, ends) == {A: 0, B: 10}
    assert count_waiting(starts, ends) == 40


@pytest.mark.parametrize("limit", [1, 7, 100, 12_345])
def test_batch_after_batch_reaches_the_end_and_no_batch_is_far_above_the_limit(limit: int) -> None:
    at = {A: 3, B: 0, C: 1_000}
    ends = {A: 5_003, B: 17, C: 1_001}
    rounds = 0
    while at != ends:
        after = limit_offsets(limit, at, ends)
        taken = count_waiting(at, after)
        assert 0 < taken < limit + len(ends)
        assert all(at[tp] <= after[tp] <= ends[tp] for tp in ends)
        at = after
        rounds += 1
    assert rounds >= 5_018 // (limit + len(ends))


def test_the_first_batch_is_due_then_the_minimum_holds_until_the_delay_is_over() -> None:
    delay = BatchDelay(min_offsets=100, max_delay_ms=1_000)
    assert delay.is_due(1, now_ms=50)
    assert not delay.is_due(99, now_ms=60)
    assert delay.is_due(100, now_ms=70)
    assert not delay.is_due(99, now_ms=1_069)
    assert delay.is_due(99, now_ms=1_070)


def test_the_delay_is_not_over_for_nothing() -> None:
    delay = BatchDelay(min_offsets=100, max_delay_ms=1_000)
    assert not delay.is_due(0, now_ms=0)
    assert delay.is_due(1, now_ms=1)
    assert not delay.is_due(0, now_ms=5_000)
    assert delay.is_due(1, now_ms=5_001)
