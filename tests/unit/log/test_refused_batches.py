"""Refused batches of idempotent producers: which batches wait for them, and until when (V38)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.core.errors import ErrorCode
from tidelog.core.limits import REFUSED_BATCH_AWAITED_MS, STORED_BATCH_AWAITED_MS
from tidelog.log.refused_batches import (
    EarlierBatchRefusedError,
    RefusedBatches,
    SkippedBatchesError,
)
from tidelog.records.batch import MAX_SEQUENCE, BatchView
from tidelog.records.builder import NewRecord, Producer, build_batch

FULL = ErrorCode.KAFKA_STORAGE_ERROR
SMALL_ISR = ErrorCode.NOT_ENOUGH_REPLICAS
NOW_MS = 5_000


def batch(sequence: int, count: int = 1, producer_id: int = 1, epoch: int = 0) -> BatchView:
    producer = Producer(producer_id, epoch, sequence & MAX_SEQUENCE)
    return BatchView(build_batch([NewRecord(None, b"v", 1000)] * count, producer=producer))


def refuse(
    refused: RefusedBatches,
    view: BatchView,
    error: ErrorCode = FULL,
    now_ms: int = NOW_MS,
) -> None:
    sequences = (view.base_sequence, view.last_sequence)
    refused.add(view.producer_id, view.producer_epoch, sequences, error, now_ms)


def behind(
    refused: RefusedBatches, view: BatchView, expected: int, now_ms: int = NOW_MS
) -> ErrorCode:
    try:
        refused.check_behind(view, expected & MAX_SEQUENCE, now_ms)
    except EarlierBatchRefusedError as error:
        return error.code
    return ErrorCode.NONE


def unknown(refused: RefusedBatches, view: BatchView, now_ms: int = NOW_MS) -> ErrorCode:
    try:
        refused.check_unknown(view, now_ms)
    except EarlierBatchRefusedError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("start", [0, 40, MAX_SEQUENCE - 3, MAX_SEQUENCE])
def test_batches_behind_a_refused_one_wait_for_it_across_the_wrap(start: int) -> None:
    refused = RefusedBatches()
    refuse(refused, batch(start, 3))
    assert behind(refused, batch(start + 3), start) == FULL
    assert behind(refused, batch(start + 4), start) == FULL, "it waits for the one before, too"
    assert behind(refused, batch(start - 2), start) == ErrorCode.NONE, "it comes before"
    assert unknown(refused, batch(start)) == ErrorCode.NONE
    assert unknown(refused, batch(start - 2)) == ErrorCode.NONE
    assert unknown(refused, batch(start + 4)) == FULL
    refused.stored(1, 0, (start + 2) & MAX_SEQUENCE)
    assert behind(refused, batch(start + 4), start + 3) == FULL
    refused.stored(1, 0, (start + 4) & MAX_SEQUENCE)
    assert len(refused) == 0


def test_a_sequence_number_that_was_never_refused_is_not_awaited() -> None:
    refused = RefusedBatches()
    refuse(refused, batch(5, 2))
    assert behind(refused, batch(9), 4) == ErrorCode.NONE
    assert behind(refused, batch(9), 7) == ErrorCode.NONE
    assert behind(refused, batch(9, producer_id=2), 5) == ErrorCode.NONE
    assert behind(refused, batch(9, epoch=1), 5) == ErrorCode.NONE
    assert unknown(refused, batch(9, epoch=1)) == ErrorCode.NONE
    assert unknown(refused, batch(9, producer_id=2)) == ErrorCode.NONE


def test_refusals_of_one_epoch_add_up_in_any_order_with_the_latest_error() -> None:
    for order in ([5, 6, 7], [7, 6, 5], [6, 5, 7]):
        refused = RefusedBatches()
        for sequence in order:
            refuse(refused, batch(sequence), SMALL_ISR if sequence == order[-1] else FULL)
        assert [behind(refused, batch(8), sequence) for sequence in (5, 6, 7)] == [SMALL_ISR] * 3
        assert behind(refused, batch(7), 4) == ErrorCode.NONE


def test_a_newer_epoch_takes_the_place_of_an_older_one_and_never_the_other_way() -> None:
    refused = RefusedBatches()
    refuse(refused, batch(5))
    refuse(refused, batch(0, epoch=1))
    refuse(refused, batch(6))
    assert behind(refused, batch(7), 6) == ErrorCode.NONE
    assert behind(refused, batch(3, epoch=1), 0) == FULL
    refused.stored(1, 0, 5)
    assert len(refused) == 1, "an older epoch fills nothing"
    refused.stored(1, 2, 0)
    refused.stored(1, 2, 0)
    assert len(refused) == 0, "the producer has bumped its epoch"


def test_a_batch_that_does_not_come_again_in_time_is_awaited_no_longer() -> None:
    refused = RefusedBatches()
    end_ms = NOW_MS + REFUSED_BATCH_AWAITED_MS
    refuse(refused, batch(5))
    refuse(refused, batch(0, producer_id=2), now_ms=NOW_MS + 1)
    assert behind(refused, batch(6), 5, NOW_MS) == FULL
    assert behind(refused, batch(7), 5, end_ms) == ErrorCode.NONE, "waiting batches prolong nothing"
    assert unknown(refused, batch(7), end_ms) == ErrorCode.NONE
    refused.expire(end_ms)
    assert len(refused) == 1
    refuse(refused, batch(5))
    refuse(refused, batch(5), now_ms=end_ms - 1)
    assert behind(refused, batch(7), 5, end_ms) == FULL, "its own refusals do"


def test_the_batches_that_waited_to_the_end_come_in_their_order() -> None:
    """The producer sends them all again, and the later ones must not be acknowledged first."""
    end_ms = NOW_MS + REFUSED_BATCH_AWAITED_MS
    refused = RefusedBatches()
    refuse(refused, batch(5))
    for view in (batch(7), batch(6), batch(8)):
        assert behind(refused, view, 5, end_ms - 1) == FULL
    assert unknown(refused, batch(8), end_ms) == FULL, "6 comes first"
    assert unknown(refused, batch(6), end_ms) == ErrorCode.NONE
    refused.stored(1, 0, 6)
    refused.stored(1, 0, 8)
    assert len(refused) == 0
    refuse(refused, batch(5))
    assert behind(refused, batch(6), 5, end_ms - 1) == FULL
    later_ms = end_ms - 1 + STORED_BATCH_AWAITED_MS
    assert unknown(refused, batch(8), later_ms) == ErrorCode.NONE, "6 did not come again"


def test_a_batch_from_before_the_gap_leaves_it_open() -> None:
    refused = RefusedBatches()
    refuse(refused, batch(5))
    refused.stored(1, 0, 2)
    assert behind(refused, batch(6), 5) == FULL
    refused.stored(1, 0, 4)
    assert behind(refused, batch(6), 5) == FULL
    refused.stored(1, 0, 8)
    assert len(refused) == 0


def test_so_many_producers_are_awaited_and_no_more() -> None:
    refused = RefusedBatches(limit=2)
    for producer_id in (1, 2, 3):
        refuse(refused, batch(5, producer_id=producer_id))
    found = [behind(refused, batch(6, producer_id=each), 5) for each in (1, 2, 3)]
    assert found == [ErrorCode.NONE, FULL, FULL]


@given(
    st.integers(0, MAX_SEQUENCE),
    st.lists(st.integers(1, 3), min_size=1, max_size=6),
    st.lists(st.booleans(), max_size=12),
)
@examples(100)
def test_whatever_is_refused_everything_is_stored_in_order_and_nothing_is_out_of_order(
    start: int, counts: list[int], refusals: list[bool]
) -> None:
    """The client sends all that is open, again and again, as librdkafka and Java do."""
    batches = []
    at = start
    for count in counts:
        batches.append(batch(at, count))
        at = (at + count) & MAX_SEQUENCE
    refused, expected = RefusedBatches(), start
    left = iter(refusals)
    while batches:
        for view in list(batches):
            if view.base_sequence != expected:
                assert behind(refused, view, expected) == FULL
            elif next(left, False):
                refuse(refused, view)
            else:
                refused.stored(1, 0, view.last_sequence)
                expected = (view.last_sequence + 1) & MAX_SEQUENCE
                batches.remove(view)
    assert len(refused) == 0


@pytest.mark.parametrize("expected", [0, 40, MAX_SEQUENCE])
def test_a_skip_is_awaited_until_a_time_and_a_rewind_is_not(expected: int) -> None:
    refused = RefusedBatches()
    later = batch(expected + 2)
    refused.check_skipped(later, expected, 0)
    refused.await_skipped(NOW_MS)
    for view in (batch(expected), batch(expected - 1)):
        refused.check_skipped(view, expected, NOW_MS - 1)
    with pytest.raises(SkippedBatchesError) as caught:
        refused.check_skipped(later, expected, NOW_MS - 1)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused.check_skipped(later, expected, NOW_MS)
    refused.await_skipped(0)
    refused.check_skipped(later, expected, NOW_MS - 1)


@pytest.mark.rule("V38")
@pytest.mark.parametrize(
    ("error", "is_awaited"),
    [(ErrorCode.NOT_ENOUGH_REPLICAS, False), (ErrorCode.NOT_LEADER_OR_FOLLOWER, True)],
)
def test_a_batch_that_was_first_here_before_skips_nothing(
    error: ErrorCode, is_awaited: bool
) -> None:
    """Of an unknown producer, whose records retention removed, it is the next one."""
    refused = RefusedBatches()
    refused.await_skipped(NOW_MS + 10)
    first = batch(9)
    sequences = (first.base_sequence, first.last_sequence)
    refused.add(first.producer_id, first.producer_epoch, sequences, error, NOW_MS)
    if is_awaited:
        with pytest.raises(SkippedBatchesError):
            refused.check_skipped(first, 0, NOW_MS)
    else:
        refused.check_skipped(first, 0, NOW_MS)
    with pytest.raises(SkippedBatchesError):
        refused.check_skipped(batch(12), 0, NOW_MS)
