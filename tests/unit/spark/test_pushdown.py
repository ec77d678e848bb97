"""Filters that planning applies: exactly those, and the same rows as without."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from tidelog.client.cluster import ClusterMetadata
from tidelog.client.fetching import ListedOffset
from tidelog.core.types import READ_UNCOMMITTED, TopicPartition
from tidelog.spark.planning import OffsetRange
from tidelog.spark.pushdown import take_filters

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RANGES = [OffsetRange(A0, 0, 100), OffsetRange(A1, 50, 60), OffsetRange(B0, 5, 10, b"i" * 16)]
TOPIC, PARTITION, OFFSET, TIME = ("topic",), ("partition",), ("offset",), ("timestamp",)


def at(milliseconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)


class Times:
    """A client for logs in which the timestamp of each record is ten times its offset."""

    def __init__(self, last: Mapping[TopicPartition, int]) -> None:
        self._last = last
        self.asked: list[dict[TopicPartition, int]] = []

    def metadata(self, topics: list[str] | None) -> ClusterMetadata:
        raise AssertionError("filters need no metadata")

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]:
        self.asked.append(dict(timestamps))
        found = {tp: -(-asked // 10) for tp, asked in timestamps.items()}
        return {
            tp: ListedOffset(offset if offset < self._last[tp] else -1, -1, 0)
            for tp, offset in found.items()
        }


def narrowed(*filters: Filter) -> tuple[list[OffsetRange], list[Filter]]:
    narrowing, left = take_filters(filters)
    return narrowing.apply(RANGES, Times({A0: 100, A1: 60, B0: 10}), READ_UNCOMMITTED), left


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (EqualTo(PARTITION, 1), [A1]),
        (EqualNullSafe(PARTITION, 1), [A1]),
        (Not(EqualTo(PARTITION, 1)), [A0, B0]),
        (In(PARTITION, (1, 7)), [A1]),
        (Not(In(PARTITION, (0, 7))), [A1]),
        (GreaterThan(PARTITION, 0), [A1]),
        (LessThanOrEqual(PARTITION, 0), [A0, B0]),
        (EqualTo(TOPIC, "b"), [B0]),
        (Not(EqualTo(TOPIC, "b")), [A0, A1]),
        (In(TOPIC, ("b", "c")), [B0]),
        (StringStartsWith(TOPIC, "b"), [B0]),
        (GreaterThanOrEqual(TOPIC, "aa"), [B0]),
    ],
)
def test_filters_on_topic_and_partition_choose_ranges(
    condition: Filter, kept: list[TopicPartition]
) -> None:
    ranges, left = narrowed(condition)
    assert (ranges, left) == ([each for each in RANGES if each.tp in kept], [])


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([EqualTo(OFFSET, 7)], [(A0, 7, 8), (B0, 7, 8)]),
        ([GreaterThan(OFFSET, 57), LessThan(OFFSET, 70)], [(A0, 58, 70), (A1, 58, 60)]),
        (
            [GreaterThanOrEqual(OFFSET, 57), LessThanOrEqual(OFFSET, 57)],
            [(A0, 57, 58), (A1, 57, 58)],
        ),
        ([LessThan(OFFSET, 6), EqualTo(TOPIC, "b")], [(B0, 5, 6)]),
        ([GreaterThan(OFFSET, 5), LessThan(OFFSET, 3)], []),
    ],
)
def test_filters_on_offsets_clip_ranges(
    conditions: list[Filter], expected: list[tuple[TopicPartition, int, int]]
) -> None:
    ranges, left = narrowed(*conditions)
    assert (ranges, left) == ([OffsetRange(*each) for each in expected], [])


@pytest.mark.parametrize(
    ("condition", "start"),
    [
        (GreaterThanOrEqual(TIME, at(550)), 55),
        (GreaterThan(TIME, at(550)), 56),
        (GreaterThan(TIME, at(549.999)), 55),
        (GreaterThanOrEqual(TIME, at(550.001)), 56),
        (EqualTo(TIME, at(550)), 55),
    ],
)
def test_a_lower_bound_of_time_starts_later_and_spark_applies_it_too(
    condition: Filter, start: int
) -> None:
    ranges, left = narrowed(condition)
    assert ranges == [OffsetRange(A0, start, 100), OffsetRange(A1, start, 60)]
    assert left == [condition]
    assert left[0] is condition


def test_only_the_ranges_that_are_left_are_looked_up_by_time() -> None:
    narrowing, _ = take_filters([GreaterThan(TIME, at(10)), EqualTo(TOPIC, "b")])
    client = Times({B0: 10})
    assert narrowing.apply(RANGES, client, READ_UNCOMMITTED) == [OffsetRange(B0, 5, 10)]
    assert client.asked == [{B0: 11}]


@pytest.mark.parametrize(
    "condition",
    [
        LessThan(TIME, at(50)),
        GreaterThan(TIME, datetime.datetime(2026, 1, 1)),
        GreaterThan(TIME, at(-5)),
        Not(GreaterThan(TIME, at(50))),
        EqualTo(("value",), b"v"),
        EqualTo(("headers", "key"), "k"),
        In(OFFSET, (1, 2)),
        Not(EqualTo(OFFSET, 1)),
        EqualTo(OFFSET, 1.0),
        EqualTo(OFFSET, None),
        EqualTo(PARTITION, True),
        In(PARTITION, (1, None)),
        Not(In(PARTITION, (1, None))),
        StringContains(TOPIC, "a"),
        IsNull(PARTITION),
        IsNotNull(("value",)),
        Not(IsNotNull(OFFSET)),
    ],
)
def test_other_filters_are_left_to_spark(condition: Any) -> None:
    assert narrowed(condition) == (RANGES, [condition])


def test_columns_that_are_never_null_need_no_test() -> None:
    assert narrowed(IsNotNull(OFFSET), IsNotNull(TIME)) == (RANGES, [])


def test_a_narrowed_range_keeps_the_id_of_its_topic() -> None:
    (only,), _ = narrowed(EqualTo(TOPIC, "b"), GreaterThan(TIME, at(60)))
    assert (only.start, only.topic_id) == (7, b"i" * 16)
