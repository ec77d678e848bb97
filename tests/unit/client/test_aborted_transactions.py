"""Batches of aborted transactions, by producer and marker."""

from __future__ import annotations

from tidelog.client.aborted_transactions import AbortedTransactions
from tidelog.client.fetching import AbortedRange
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.control import ABORT, COMMIT, build_end_marker


def data(base_offset: int, producer: int, *, transactional: bool = True, count: int = 1) -> bytes:
    return bytes(
        build_batch(
            [NewRecord(None, b"v", 1)] * count,
            base_offset=base_offset,
            leader_epoch=0,
            producer=Producer(producer, 0, 0),
            transactional=transactional,
        )
    )


def marker(base_offset: int, producer: int, control_type: int) -> bytes:
    built = build_end_marker(control_type, producer, 0, 0, 1)
    built[0:8] = base_offset.to_bytes(8, "big")
    return bytes(built)


def left_out(aborted: list[AbortedRange], *batches: bytes) -> list[int]:
    is_aborted = AbortedTransactions(aborted)
    views = [BatchView(each) for each in batches]
    return [view.base_offset for view in views if is_aborted(view)]


def test_an_aborted_transaction_is_left_out_from_its_first_offset_to_its_marker() -> None:
    assert left_out(
        [AbortedRange(7, 2)],
        data(0, 7),
        marker(1, 7, COMMIT),
        data(2, 7, count=3),
        data(5, 7),
        marker(6, 7, ABORT),
        data(7, 7),
    ) == [2, 5]


def test_other_producers_and_their_markers_change_nothing() -> None:
    assert left_out(
        [AbortedRange(7, 0)],
        data(0, 7),
        data(1, 8),
        marker(2, 8, ABORT),
        data(3, 7),
        data(4, 7, transactional=False),
        marker(5, 7, ABORT),
    ) == [0, 3]


def test_a_transaction_may_have_begun_before_the_fetch_and_another_may_follow() -> None:
    assert left_out(
        [AbortedRange(7, 90), AbortedRange(8, 3), AbortedRange(7, 104)],
        data(100, 7),
        marker(101, 7, ABORT),
        data(102, 8),
        data(103, 7),
        data(104, 7),
    ) == [100, 102, 104]


def test_without_aborted_transactions_nothing_is_left_out() -> None:
    assert left_out([], data(0, 7), marker(1, 7, COMMIT)) == []
