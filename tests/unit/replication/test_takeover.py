"""Times of a new leadership: followers connect, truncate and fetch, a record is acknowledged."""

from __future__ import annotations

import pytest

from tidelog.replication.takeover import NEVER, Takeover


def takeover() -> Takeover:
    """A leadership whose epoch begins at offset 10, taken at 1,000 ms."""
    return Takeover(6, 10, 1_000)


def test_nothing_has_happened_at_first() -> None:
    assert set(takeover().phases_ms().values()) == {NEVER}
    assert takeover().age_ms(1_030) == 30 and not takeover().is_over([])


def test_a_follower_connects_once_however_it_comes() -> None:
    one = takeover()
    one.connected(2, 1_003)
    one.diverged(2, 1_004)
    one.diverged(2, 1_005)
    assert not one.is_over([])
    assert one.fetched(2, 1_009)
    assert not one.fetched(2, 1_020)
    times = one.followers[2]
    assert (times.connected_ms, times.diverged_ms, times.fetched_ms) == (3, 4, 9)


def test_phases_end_with_the_last_follower_but_the_first_fetch() -> None:
    one = takeover()
    assert one.fetched(2, 1_004)
    one.diverged(3, 1_007)
    assert one.phases_ms()["truncate"] == NEVER, "it has not come back"
    assert not one.fetched(3, 1_011), "another one was first"
    one.committed(11, 1_013)
    assert one.phases_ms() == {"connect": 7, "truncate": 11, "first_fetch": 4, "acknowledge": 13}


def test_where_nobody_has_to_cut_there_is_no_truncation() -> None:
    one = takeover()
    one.fetched(2, 1_004)
    assert one.phases_ms()["truncate"] == NEVER


@pytest.mark.parametrize(("high_watermark", "ms"), [(9, NEVER), (10, NEVER), (11, 8)])
def test_only_a_record_of_the_leadership_itself_counts(high_watermark: int, ms: int) -> None:
    one = takeover()
    one.committed(high_watermark, 1_008)
    one.committed(high_watermark + 0, 1_020)
    assert one.acknowledged_ms == ms


def test_it_is_over_when_every_live_follower_has_fetched_and_a_record_is_committed() -> None:
    one = takeover()
    one.fetched(2, 1_004)
    one.committed(11, 1_005)
    assert one.is_over([2]) and one.is_over([])
    assert not one.is_over([2, 3])
    one.connected(3, 1_006)
    assert not one.is_over([2, 3])
    one.fetched(3, 1_007)
    assert one.is_over([2, 3])


def test_it_is_not_over_while_a_follower_cuts_its_log_awaited_or_not() -> None:
    one = takeover()
    one.fetched(2, 1_004)
    one.diverged(3, 1_005)
    one.committed(11, 1_006)
    assert not one.is_over([2])
    one.fetched(3, 1_009)
    assert one.is_over([2])
