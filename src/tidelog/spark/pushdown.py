"""Filters of a query that planning can apply, so that fewer ranges are fetched.

Planning applies filters on topic, partition and offset exactly, and Spark need not apply them
again. A lower bound of timestamps moves the start of a range to the first record that is not older.
Records at higher offsets may have earlier timestamps, so Spark applies timestamp filters, too.
Spark applies all filters that planning does not apply exactly.

This module uses Spark's filter classes, and a client that looks up offsets by timestamp; it plans
no tasks.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.planning import OffsetRange, OffsetsClient

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
#: Columns that are never null.
_ALWAYS_SET: Final = ("topic", "partition", "offset", "timestamp", "timestampType")

_EQUAL: Final = (EqualTo, EqualNullSafe)
#: For each class of filters, the comparison of a column with the filter's value.
_HOLDS: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: lambda column, value: bool(column == value),
    EqualNullSafe: lambda column, value: bool(column == value),
    GreaterThan: lambda column, value: bool(column > value),
    GreaterThanOrEqual: lambda column, value: bool(column >= value),
    LessThan: lambda column, value: bool(column < value),
    LessThanOrEqual: lambda column, value: bool(column <= value),
    In: lambda column, values: column in values,
    StringStartsWith: lambda column, value: bool(column.startswith(value)),
}


@dataclass(frozen=True, slots=True)
class _Condition:
    """A query's filter on the column `topic` or `partition`."""

    column: str
    kind: type[Filter]
    value: Any
    is_negated: bool

    def keeps(self, tp: TopicPartition) -> bool:
        found = tp.topic if self.column == "topic" else tp.partition
        return _HOLDS[self.kind](found, self.value) is not self.is_negated


@dataclass(frozen=True, slots=True)
class Narrowing:
    """How a query's filters narrow the read: partitions, offsets `[start, end)`, and a minimum
    time.
    """

    conditions: tuple[_Condition, ...] = ()
    start: int = 0
    end: int | None = None
    #: Milliseconds since 1970 from which records are wanted; None for all records.
    from_ms: int | None = None

    def apply(
        self, ranges: Iterable[OffsetRange], client: OffsetsClient, isolation_level: int
    ) -> list[OffsetRange]:
        """Return the parts of ranges that may pass the filters; `client` looks up timestamps."""
        kept = [
            self._clipped(each)
            for each in ranges
            if all(condition.keeps(each.tp) for condition in self.conditions)
        ]
        kept = [each for each in kept if each.size > 0]
        if self.from_ms is None or not kept:
            return kept
        listed = client.list_offsets({each.tp: self.from_ms for each in kept}, isolation_level)
        firsts = [listed[each.tp].offset for each in kept]
        return [
            OffsetRange(each.tp, max(each.start, first), each.end, each.topic_id)
            for each, first in zip(kept, firsts, strict=True)
            if 0 <= first < each.end
        ]

    def _clipped(self, each: OffsetRange) -> OffsetRange:
        end = each.end if self.end is None else min(each.end, self.end)
        return OffsetRange(each.tp, max(each.start, self.start), end, each.topic_id)


def take_filters(filters: Sequence[Filter]) -> tuple[Narrowing, list[Filter]]:
    """Return how planning narrows the read, and the filters that Spark has to apply."""
    taker = _Taker()
    left = [each for each in filters if not taker.takes(each)]
    narrowing = Narrowing(tuple(taker.conditions), taker.start, taker.end, taker.from_ms)
    return narrowing, left


class _Taker:
    """The collection of a query's filters into a Narrowing; filters that planning cannot apply stay
    for Spark.
    """

    def __init__(self) -> None:
        self.conditions: list[_Condition] = []
        self.start = 0
        self.end: int | None = None
        self.from_ms: int | None = None

    def takes(self, given: Filter) -> bool:
        """Return whether planning applies a filter exactly."""
        is_negated = isinstance(given, Not)
        each: Any = given.child if isinstance(given, Not) else given
        column = each.attribute[0] if len(each.attribute) == 1 else ""
        if isinstance(each, IsNotNull):
            return column in _ALWAYS_SET and not is_negated
        if type(each) not in _HOLDS:
            return False
        if column in ("topic", "partition"):
            return self._takes_condition(column, each, is_negated)
        if is_negated:
            return False
        if column == "offset" and type(each.value) is int:
            return self._takes_offset(each)
        if column == "timestamp":
            self._learn_time(each)
        return False

    def _takes_condition(self, column: str, each: Any, is_negated: bool) -> bool:
        values = each.value if isinstance(each, In) else (each.value,)
        expected = str if column == "topic" else int
        if not all(type(value) is expected for value in values):
            return False
        self.conditions.append(_Condition(column, type(each), each.value, is_negated))
        return True

    def _takes_offset(self, each: Any) -> bool:
        value = each.value
        if isinstance(each, (*_EQUAL, GreaterThanOrEqual)):
            self.start = max(self.start, value)
        if isinstance(each, GreaterThan):
            self.start = max(self.start, value + 1)
        if isinstance(each, (*_EQUAL, LessThanOrEqual)):
            self.end = _least(self.end, value + 1)
        if isinstance(each, LessThan):
            self.end = _least(self.end, value)
        return True

    def _learn_time(self, each: Any) -> None:
        if not isinstance(each, (*_EQUAL, GreaterThan, GreaterThanOrEqual)):
            return
        microseconds = _microseconds(each.value)
        if microseconds is None:
            return
        # Records have milliseconds, so the bound is rounded up to the first millisecond that passes
        # the filter.
        first = (
            microseconds // 1000 + 1 if isinstance(each, GreaterThan) else -(-microseconds // 1000)
        )
        if first > 0:
            self.from_ms = first if self.from_ms is None else max(self.from_ms, first)


def _microseconds(value: object) -> int | None:
    """Return the time in a filter: Spark gives a datetime, Sail microseconds since 1970.

    Returns None for a datetime without time zone, which no record's timestamp can be compared with.
    """
    if isinstance(value, datetime.datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // _MICROSECOND
    return value if type(value) is int else None


def _least(bound: int | None, value: int) -> int:
    return value if bound is None else min(bound, value)
