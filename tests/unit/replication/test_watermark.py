"""The high watermark as arithmetic over progress."""

from __future__ import annotations

import pytest

from tidelog.replication import watermark
from tidelog.replication.progress import NEVER_MS, FollowerProgress

NOW_MS, LAG_MS = 50_000, 10_000


def follower(
    log_end_offset: int,
    in_maximal_isr: bool = True,
    is_eligible: bool = True,
    last_caught_up_ms: int = NEVER_MS,
) -> FollowerProgress:
    made = FollowerProgress(2, last_caught_up_ms)
    made.log_end_offset = log_end_offset
    made.in_maximal_isr = in_maximal_isr
    made.is_eligible = is_eligible
    return made


def high_watermark(log_end_offset: int, *followers: FollowerProgress) -> int:
    return watermark.high_watermark(log_end_offset, followers, NOW_MS, LAG_MS)


@pytest.mark.rule("V60")
def test_it_is_the_smallest_end_over_the_maximal_isr() -> None:
    assert high_watermark(10) == 10
    assert high_watermark(10, follower(7), follower(9)) == 7
    assert high_watermark(10, follower(10)) == 10


@pytest.mark.rule("V60")
def test_a_member_that_has_not_fetched_holds_it_back() -> None:
    assert high_watermark(10, follower(-1)) == -1


@pytest.mark.rule("V60")
def test_it_waits_for_an_eligible_caught_up_replica_only() -> None:
    lately = NOW_MS - LAG_MS
    assert high_watermark(10, follower(7, False, True, lately)) == 7
    assert high_watermark(10, follower(7, False, True, lately - 1)) == 10
    assert high_watermark(10, follower(7, False, False, lately)) == 10


@pytest.mark.rule("V60")
def test_the_effective_minimum_is_never_more_than_the_replicas() -> None:
    assert watermark.effective_minimum(2, 3) == 2
    assert watermark.effective_minimum(3, 2) == 2


@pytest.mark.rule("V61")
def test_a_followers_mark_is_the_leaders_within_its_own_log() -> None:
    assert watermark.on_follower(8, 0, 10) == 8
    assert watermark.on_follower(12, 0, 10) == 10
    assert watermark.on_follower(3, 5, 10) == 5
