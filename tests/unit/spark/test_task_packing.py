"""Tasks of a micro-batch."""

from __future__ import annotations

from tidelog.core.types import TopicPartition
from tidelog.spark.planning import OffsetRange
from tidelog.spark.streaming.task_packing import pack_ranges


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", n), 7, 7 + size) for n, size in enumerate(sizes)]


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    given = ranges(40, 100, 30, 250, 30)
    tasks = pack_ranges(given, 100)
    assert tasks == [(given[3],), (given[1],), (given[0], given[2], given[4])]


def test_every_range_is_in_one_task_whatever_their_order() -> None:
    given = ranges(*(size * 37 % 50 + 1 for size in range(60)))
    tasks = pack_ranges(given, 60)
    assert sorted((each for task in tasks for each in task), key=lambda it: it.tp) == given
    assert all(sum(each.size for each in task) <= 60 for task in tasks)
    assert pack_ranges(reversed(given), 60) == tasks


def test_no_ranges_no_tasks() -> None:
    assert pack_ranges([]) == []
