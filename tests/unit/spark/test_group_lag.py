"""Lag of groups from commits and the ends of logs."""

from __future__ import annotations

import pytest

from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.analyze.group_lag import LagPoint, past_lags, window_ends
from tidelog.spark.pipelines.analyze.lag_tables import commit_row
from tidelog.wire.data.consumer_offsets import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_offset_commit_value,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMES = [100, 200, 300]


def test_a_commit_holds_until_the_next_one() -> None:
    ends = {A: [10, 20, 30]}
    assert past_lags([("g", A, 0, 8), ("g", A, 2, 30)], ends, TIMES) == [
        LagPoint("g", 100, 2, 0),
        LagPoint("g", 200, 12, 100),
        LagPoint("g", 300, 0, 0),
    ]


def test_lag_sums_records_and_takes_the_oldest_partition() -> None:
    ends = {A: [10, 20, 30], B: [100, 100, 100]}
    commits = [("g", A, 0, 10), ("g", B, 0, 60), ("h", B, 1, 100)]
    assert past_lags(commits, ends, TIMES) == [
        LagPoint("g", 100, 40, 0),
        LagPoint("g", 200, 50, 100),
        LagPoint("g", 300, 60, 200),
        LagPoint("h", 200, 0, 0),
        LagPoint("h", 300, 0, 0),
    ]


def test_no_lag_before_a_commit_or_after_its_deletion() -> None:
    found = past_lags([("g", A, 1, 5), ("g", A, 2, -1)], {A: [9, 9, 9]}, TIMES)
    assert found == [LagPoint("g", 200, 4, 100)]


def test_a_topic_without_a_log_has_no_lag() -> None:
    assert past_lags([("g", A, 0, 5)], {}, TIMES) == []


@pytest.mark.parametrize(
    ("start", "end", "window", "ends"),
    [(0, 10, 5, [5, 10]), (0, 11, 5, [5, 10, 11]), (3, 4, 5, [4]), (0, 5, 5, [5])],
)
def test_the_last_window_ends_with_the_time(
    start: int, end: int, window: int, ends: list[int]
) -> None:
    assert window_ends(start, end, window) == ends


def test_a_record_becomes_a_commit_in_its_window() -> None:
    key = encode_key(OffsetCommitKey("g", "t", 3))
    value = encode_offset_commit_value(OffsetCommitValue(42, 1, "", 1_250, -1))
    assert commit_row(key, value, 9_999, 1_000, 100) == ("g", "t", 3, 2, 42)
    # A commit from before the time holds at the end of the first window.
    assert commit_row(key, value, 9_999, 5_000, 100) == ("g", "t", 3, 0, 42)
    # A deletion has the time of its record.
    assert commit_row(key, None, 1_350, 1_000, 100) == ("g", "t", 3, 3, -1)


def test_other_records_are_no_commits() -> None:
    assert commit_row(encode_key(GroupMetadataKey("g")), b"", 0, 0, 1) is None
    assert commit_row(None, b"", 0, 0, 1) is None
    assert commit_row(b"\x00", b"", 0, 0, 1) is None
    assert commit_row(b"\x7f\xff", b"", 0, 0, 1) is None
