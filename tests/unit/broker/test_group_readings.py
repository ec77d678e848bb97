"""The age of the oldest unread record of a group, by the timestamps of its batch."""

from __future__ import annotations

import pytest

from tidelog.broker.coordinators.group_readings import oldest_ms
from tidelog.records.batch import DELETE_HORIZON_MASK, BatchView
from tidelog.records.builder import NewRecord, build_batch


def batch_of(*timestamps_ms: int, log_append_time_ms: int | None = None) -> BatchView:
    records = [NewRecord(None, b"value", each) for each in timestamps_ms]
    return BatchView(build_batch(records, log_append_time_ms=log_append_time_ms))


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (batch_of(1_000, 5_000), 1_000),
        (batch_of(1_000, 5_000, log_append_time_ms=9_000), 9_000),
        (batch_of(-1), None),
    ],
    ids=["create-time", "log-append-time", "no-timestamp"],
)
def test_oldest_record(batch: BatchView, expected: int | None) -> None:
    assert oldest_ms(batch) == expected


def test_the_horizon_of_a_compacted_batch_is_no_age() -> None:
    batch = batch_of(1_000, 5_000)
    batch.attributes |= DELETE_HORIZON_MASK
    batch.base_timestamp = 99_000_000
    assert oldest_ms(batch) == 5_000
