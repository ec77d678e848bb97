"""A following replica, answer by answer."""

from __future__ import annotations

import pytest
from tests.support.replication import a_follower

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode
from tidelog.core.types import EpochEnd
from tidelog.replication import truncation
from tidelog.replication.effects import (
    APPEND,
    NOTHING,
    AdvanceLogStart,
    AskLogStart,
    BackOff,
    Effects,
    Flush,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from tidelog.replication.follower import FetchPosition, FollowerReplica

EPOCHS = LeaderEpochs([(1, 0), (3, 12)])


def answer(
    follower: FollowerReplica,
    *,
    position: FetchPosition | None = None,
    error: int = 0,
    diverging: EpochEnd | None = None,
    leader_high_watermark: int = 0,
    leader_log_start: int = 0,
    has_records: bool = False,
) -> Effects:
    return follower.answered(
        follower.position if position is None else position,
        error,
        diverging,
        EPOCHS,
        leader_high_watermark,
        leader_log_start,
        has_records,
    )


def test_it_fetches_from_its_end_with_its_latest_epoch() -> None:
    follower = a_follower(epochs=EPOCHS, log_end_offset=15)
    assert follower.position == (5, 15, 3)
    assert follower.begin() is NOTHING


def test_a_rule_that_cuts_on_becoming_follower_would_be_obeyed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(truncation, "offset_on_becoming_follower", lambda end, mark: mark)
    follower = a_follower(epochs=EPOCHS, log_end_offset=15, high_watermark=4)
    assert follower.begin() == (TruncateTo(4),)
    assert follower.is_busy


@pytest.mark.rule("V61")
def test_records_are_appended_and_then_the_marks_taken() -> None:
    follower = a_follower(log_end_offset=10)
    assert answer(follower, has_records=True, leader_high_watermark=12) is APPEND
    assert follower.is_busy
    assert follower.high_watermark == 0
    assert follower.appended(14, 5) is NOTHING
    assert follower.high_watermark == 12
    assert follower.position == (5, 14, 5)
    assert not follower.is_busy


def test_the_lag_is_what_the_log_lacks_up_to_the_leaders_high_watermark() -> None:
    follower = a_follower(log_end_offset=10)
    assert follower.lag == 0
    answer(follower, has_records=True, leader_high_watermark=17)
    assert follower.lag == 7
    follower.appended(14, 5)
    assert follower.lag == 3
    answer(follower, leader_high_watermark=20)
    assert follower.lag == 6, "a throttled fetch brings no records"
    answer(follower, leader_high_watermark=12)
    assert follower.lag == 0, "the log is beyond it"


def test_an_answer_while_busy_is_dropped() -> None:
    follower = a_follower(log_end_offset=10)
    position = follower.position
    answer(follower, has_records=True)
    assert answer(follower, position=position, has_records=True) is NOTHING


@pytest.mark.rule("V33")
def test_an_answer_to_another_position_is_dropped() -> None:
    follower = a_follower(log_end_offset=10)
    for stale in (FetchPosition(4, 10, -1), FetchPosition(5, 9, -1), FetchPosition(5, 10, 3)):
        assert answer(follower, position=stale, leader_high_watermark=10) is NOTHING
    assert follower.high_watermark == 0


@pytest.mark.rule("V67")
def test_the_leaders_log_start_is_followed_up_to_the_high_watermark() -> None:
    follower = a_follower(log_end_offset=10)
    assert answer(follower, leader_high_watermark=6, leader_log_start=4) == (AdvanceLogStart(4),)
    assert follower.log_start_offset == 4
    assert answer(follower, leader_high_watermark=6, leader_log_start=7) is NOTHING
    assert answer(follower, leader_high_watermark=9, leader_log_start=7) == (AdvanceLogStart(7),)


@pytest.mark.rule("V32")
def test_a_divergence_is_cut_and_reported() -> None:
    follower = a_follower(epochs=EPOCHS, log_end_offset=15, high_watermark=11)
    assert answer(follower, diverging=EpochEnd(1, 9)) == (TruncateTo(9),)
    assert follower.is_busy
    follower.truncated(0, 9, 1)
    assert follower.position == (5, 9, 1)
    assert follower.high_watermark == 9
    assert not follower.is_busy


@pytest.mark.rule("V67")
def test_a_divergence_below_either_log_start_starts_over() -> None:
    follower = a_follower(epochs=EPOCHS, log_end_offset=15)
    assert answer(follower, diverging=EpochEnd(1, 9), leader_log_start=11) == (
        TruncateFullyAndStartAt(11),
    )
    late = a_follower(epochs=EPOCHS, log_start_offset=10, log_end_offset=15)
    assert answer(late, diverging=EpochEnd(1, 9), leader_log_start=2) == (
        TruncateFullyAndStartAt(9),
    )


@pytest.mark.rule("V38")
def test_who_starts_over_claims_nothing_of_what_goes_before_it_is_gone() -> None:
    follower = a_follower(epochs=EPOCHS, log_start_offset=10, log_end_offset=15, high_watermark=14)
    answer(follower, diverging=EpochEnd(1, 9), leader_log_start=2)
    assert follower.is_busy and follower.high_watermark == 9


@pytest.mark.rule("V67")
def test_an_offset_out_of_range_asks_for_the_log_start_and_starts_over_there() -> None:
    follower = a_follower(log_end_offset=10)
    assert answer(follower, error=ErrorCode.OFFSET_OUT_OF_RANGE) == (AskLogStart(),)
    assert follower.is_busy
    assert follower.leader_log_starts_at(20) == (TruncateFullyAndStartAt(20),)
    follower.truncated(20, 20, -1)
    assert (follower.log_start_offset, follower.high_watermark) == (20, 20)


def test_errors_and_failures_back_off() -> None:
    follower = a_follower(log_end_offset=10)
    assert answer(follower, error=ErrorCode.FENCED_LEADER_EPOCH) == (
        BackOff(ErrorCode.FENCED_LEADER_EPOCH),
    )
    assert not follower.is_busy
    answer(follower, has_records=True)
    assert follower.failed(ErrorCode.CORRUPT_MESSAGE) == (BackOff(ErrorCode.CORRUPT_MESSAGE),)
    assert not follower.is_busy


@pytest.mark.rule("V66")
def test_records_whose_flush_failed_are_flushed_before_the_next_fetch() -> None:
    follower = a_follower(log_end_offset=10)
    answer(follower, has_records=True, leader_high_watermark=12)
    follower.failed(ErrorCode.KAFKA_STORAGE_ERROR)
    assert follower.resumed(0, 10, -1) is NOTHING, "nothing was written"
    assert not follower.is_busy
    assert follower.resumed(0, 14, 5) == (Flush(),)
    assert follower.is_busy and follower.position == (5, 10, -1)
    assert answer(follower, has_records=True) is NOTHING, "the log has these records"
    assert follower.resumed(0, 14, 5) is NOTHING
    follower.appended(14, 5)
    assert (follower.position, follower.high_watermark) == ((5, 14, 5), 12)


@pytest.mark.rule("V66", "V38")
def test_a_truncation_that_failed_in_part_moves_the_position() -> None:
    follower = a_follower(epochs=EPOCHS, log_end_offset=15, high_watermark=14)
    assert answer(follower, diverging=EpochEnd(1, 9)) == (TruncateTo(9),)
    follower.failed(ErrorCode.KAFKA_STORAGE_ERROR)
    assert follower.resumed(0, 12, 1) is NOTHING
    assert not follower.is_busy
    assert (follower.position, follower.high_watermark) == ((5, 12, 1), 9)


def test_retention_moves_the_log_start_and_what_lies_before_it_is_committed() -> None:
    follower = a_follower(log_end_offset=10, high_watermark=3)
    follower.log_start_moved(5)
    assert (follower.log_start_offset, follower.high_watermark) == (5, 5)


def test_key_holds_the_whole_state_and_copies_are_independent() -> None:
    follower = a_follower(log_end_offset=10)
    copy = follower.copy()
    assert copy.key() == follower.key()
    answer(copy, leader_high_watermark=5)
    assert copy.key() != follower.key()
    assert follower.high_watermark == 0


@pytest.mark.rule("V68")
def test_a_damaged_log_is_truncated_before_the_first_fetch() -> None:
    follower = a_follower(epochs=EPOCHS, log_end_offset=15, high_watermark=14, damaged_from=12)
    assert follower.begin() == (TruncateTo(12),)
    assert follower.is_busy and follower.high_watermark == 12
    follower.truncated(0, 12, 1)
    assert follower.position == (5, 12, 1)
    assert follower.begin() is NOTHING, "what is fetched from now on is not damaged"
    assert a_follower(log_end_offset=15, damaged_from=15).begin() is NOTHING


@pytest.mark.rule("V68")
@pytest.mark.parametrize("end", [15, 13], ids=["nothing was removed", "a part was removed"])
def test_damage_that_could_not_be_truncated_is_truncated_after_the_pause(end: int) -> None:
    follower = a_follower(epochs=EPOCHS, log_end_offset=15, damaged_from=12)
    follower.begin()
    assert follower.failed(ErrorCode.KAFKA_STORAGE_ERROR) == (
        BackOff(ErrorCode.KAFKA_STORAGE_ERROR),
    )
    assert follower.resumed(0, end, 3) == (TruncateTo(12),)
    follower.truncated(0, 12, 1)
    assert follower.resumed(0, 12, 1) is NOTHING
    assert follower.position == (5, 12, 1)


@pytest.mark.rule("V68")
def test_a_truncation_that_failed_after_the_damage_was_gone_is_not_repeated() -> None:
    follower = a_follower(epochs=EPOCHS, log_end_offset=15, damaged_from=12)
    follower.begin()
    follower.failed(ErrorCode.KAFKA_STORAGE_ERROR)
    assert follower.resumed(0, 12, 1) is NOTHING
    assert follower.position == (5, 12, 1)
