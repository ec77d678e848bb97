"""Batches that come before their partition's replica: what is kept of them, and how long."""

from __future__ import annotations

import pytest

from tidelog.broker.replicas.hosting import early_batches
from tidelog.broker.replicas.hosting.early_batches import EarlyBatches
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import REFUSED_BATCH_AWAITED_MS
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, Producer, build_batch

RECORDS = build_batch([NewRecord(None, b"v", 1000)], producer=Producer(5, 0, 0))
ERROR = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def test_what_is_taken_is_kept_no_longer() -> None:
    early = EarlyBatches()
    early.refused(partition(0), RECORDS, ERROR, 0)
    assert len(early.taken(partition(0))) == 1
    assert len(early.taken(partition(0))) == len(early) == 0


def test_records_of_no_producer_and_damaged_ones_leave_nothing() -> None:
    early = EarlyBatches()
    for records in (b"", b"no batch", build_batch([NewRecord(None, b"v", 1000)])):
        early.refused(partition(0), records, ERROR, 0)
    assert len(early) == 0


def test_partitions_are_forgotten_by_time_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_batches, "MAX_PARTITIONS_WITH_EARLY_BATCHES", 2)
    early = EarlyBatches()
    for number in (0, 1, 0, 2):
        early.refused(partition(number), RECORDS, ERROR, 0)
    assert [len(early.taken(partition(number))) for number in (0, 1, 2)] == [1, 0, 1]
    early.refused(partition(0), RECORDS, ERROR, 0)
    early.refused(partition(0), b"", ERROR, REFUSED_BATCH_AWAITED_MS)
    assert len(early) == 0
