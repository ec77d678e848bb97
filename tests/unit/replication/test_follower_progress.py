"""What a leader concludes from the fetches of one follower (F1 to F4)."""

from __future__ import annotations

import pytest

from tidelog.replication.pending_reads import PendingReads
from tidelog.replication.progress import NEVER_MS, UNKNOWN_OFFSET, FollowerProgress

LAG_MS = 10_000


def follower(last_caught_up_ms: int = NEVER_MS) -> FollowerProgress:
    return FollowerProgress(2, last_caught_up_ms)


def test_a_follower_that_never_fetched_is_unknown() -> None:
    progress = follower()
    assert progress.log_end_offset == UNKNOWN_OFFSET
    assert progress.last_caught_up_ms == NEVER_MS
    assert not progress.is_caught_up(0, 0, LAG_MS)


@pytest.mark.rule("F1")
def test_a_fetch_tells_offsets_time_and_incarnation() -> None:
    progress = follower()
    progress.fetched(7, log_start_offset=3, leader_end_offset=9, broker_epoch=55, now_ms=1_000)
    assert progress.log_end_offset == 7
    assert progress.log_start_offset == 3
    assert progress.last_fetch_leader_end_offset == 9
    assert progress.last_fetch_ms == 1_000
    assert progress.last_caught_up_ms == NEVER_MS
    assert progress.broker_epoch == 55


@pytest.mark.rule("F2")
def test_a_fetch_at_the_leaders_end_is_caught_up_now() -> None:
    progress = follower()
    progress.fetched(9, 0, 9, 1, 1_000)
    assert progress.last_caught_up_ms == 1_000


@pytest.mark.rule("F2")
def test_a_fetch_at_the_end_of_the_previous_fetch_is_caught_up_at_that_time() -> None:
    progress = follower()
    progress.fetched(5, 0, 9, 1, 1_000)
    progress.fetched(9, 0, 20, 1, 2_000)
    assert progress.last_caught_up_ms == 1_000


@pytest.mark.rule("F2")
def test_a_fetch_behind_the_previous_end_is_not_caught_up() -> None:
    progress = follower()
    progress.fetched(5, 0, 9, 1, 1_000)
    progress.fetched(8, 0, 20, 1, 2_000)
    assert progress.last_caught_up_ms == NEVER_MS


@pytest.mark.rule("F2")
def test_an_older_caught_up_time_never_replaces_a_newer_one() -> None:
    progress = follower(last_caught_up_ms=1_500)
    progress.fetched(5, 0, 9, 1, 1_000)
    progress.fetched(9, 0, 20, 1, 2_000)
    assert progress.last_caught_up_ms == 1_500


@pytest.mark.rule("F3")
def test_the_same_end_is_in_sync_whatever_the_time() -> None:
    progress = follower()
    progress.fetched(9, 0, 10, 1, 0)
    assert progress.is_caught_up(9, 10_000_000, LAG_MS)


@pytest.mark.rule("F4")
def test_out_of_sync_only_past_the_limit() -> None:
    progress = follower()
    progress.fetched(9, 0, 9, 1, 1_000)
    assert progress.is_caught_up(10, 1_000 + LAG_MS, LAG_MS)
    assert not progress.is_caught_up(10, 1_001 + LAG_MS, LAG_MS)


def test_key_holds_the_whole_state_and_copies_are_independent() -> None:
    progress = follower()
    progress.fetched(5, 0, 9, 1, 1_000)
    copy = progress.copy()
    assert copy.key() == progress.key()
    copy.fetched(6, 0, 9, 1, 1_000)
    assert copy.key() != progress.key()
    assert progress.log_end_offset == 5


def test_a_copy_has_reads_of_its_own_also_those_that_are_shown_alone() -> None:
    progress = follower()
    shown = progress.reads_shown = PendingReads(30_000)
    copy = progress.copy()
    assert copy.reads_shown is not shown and copy.reads_shown is not None
    assert copy.reads_shown.key() == shown.key() and copy.reads is None


def test_a_copy_shows_no_reads_where_none_are_shown() -> None:
    progress = follower()
    progress.reads = PendingReads(30_000)
    copy = progress.copy()
    assert copy.reads_shown is None
    assert copy.reads is not None and copy.reads is not progress.reads
