"""The confirmed ISR, changes that may still be accepted, and their union."""

from __future__ import annotations

import pytest

from tidelog.replication import isr
from tidelog.replication.isr import IsrChange, IsrState
from tidelog.replication.progress import FollowerProgress


def change(*members: int) -> IsrChange:
    return IsrChange(tuple(members), tuple(-1 for _ in members), 5, 3)


def test_without_changes_all_views_are_the_confirmed_isr() -> None:
    state = IsrState((1, 2), 3)
    assert isr.maximal_isr(state) == (1, 2)
    assert isr.target_isr(state) == (1, 2)
    assert isr.changes(state) == ()


@pytest.mark.rule("A7")
def test_an_expansion_counts_as_soon_as_it_is_proposed() -> None:
    state = isr.queue(IsrState((1, 2), 3), change(1, 2, 3))
    assert isr.maximal_isr(state) == (1, 2, 3)
    assert isr.maximal_isr(isr.sent(state, change(1, 2, 3))) == (1, 2, 3)


@pytest.mark.rule("A6")
def test_a_shrink_does_not_count_before_it_is_confirmed() -> None:
    state = isr.sent(isr.queue(IsrState((1, 2, 3), 3), change(1, 2)), change(1, 2))
    assert isr.maximal_isr(state) == (1, 2, 3)
    assert isr.target_isr(state) == (1, 2)


@pytest.mark.rule("A8")
def test_every_change_that_may_be_accepted_counts() -> None:
    state = IsrState((1,), 3, in_flight=(change(1, 2),), queued=change(1, 3))
    assert isr.maximal_isr(state) == (1, 2, 3)
    assert isr.target_isr(state) == (1, 3)


@pytest.mark.rule("A8")
def test_a_change_that_was_not_sent_gives_way_to_the_next() -> None:
    state = isr.queue(IsrState((1,), 3), change(1, 2))
    state = isr.queue(state, change(1, 2, 3))
    assert isr.changes(state) == (change(1, 2, 3),)
    assert isr.withdraw(state) == IsrState((1,), 3)


@pytest.mark.rule("A8")
def test_a_change_that_will_not_be_made_leaves_the_union() -> None:
    state = isr.sent(isr.queue(IsrState((1,), 3), change(1, 2)), change(1, 2))
    assert isr.not_made(state, change(1, 3)) == state
    assert isr.maximal_isr(isr.not_made(state, change(1, 2))) == (1,)


@pytest.mark.rule("A9")
def test_the_controllers_word_voids_what_was_pending() -> None:
    assert isr.committed([1, 3], 4) == IsrState((1, 3), 4)


@pytest.mark.rule("V63")
@pytest.mark.parametrize(
    ("log_end_offset", "high_watermark", "epoch_start_offset", "may_join"),
    [(10, 10, 10, True), (10, 11, 5, False), (10, 5, 11, False), (12, 11, 10, True)],
)
def test_joining_needs_the_high_watermark_and_the_current_epoch(
    log_end_offset: int, high_watermark: int, epoch_start_offset: int, may_join: bool
) -> None:
    follower = FollowerProgress(2, 0)
    follower.log_end_offset = log_end_offset
    follower.is_eligible = True
    assert isr.may_join(follower, high_watermark, epoch_start_offset) is may_join


@pytest.mark.rule("V63")
def test_a_replica_that_is_not_alive_does_not_join() -> None:
    follower = FollowerProgress(2, 0)
    follower.log_end_offset = 10
    assert not isr.may_join(follower, 5, 5)


@pytest.mark.rule("V62")
def test_a_member_must_leave_when_it_is_not_caught_up() -> None:
    follower = FollowerProgress(2, last_caught_up_ms=0)
    follower.log_end_offset = 9
    assert not isr.must_leave(follower, 10, 100, 100)
    assert isr.must_leave(follower, 10, 101, 100)
    assert not isr.must_leave(follower, 9, 101, 100)
    follower.bytes_behind = 8
    assert isr.must_leave(follower, 9, 101, 100, max_lag_bytes=7)
    assert not isr.must_leave(follower, 9, 101, 100, max_lag_bytes=8)
