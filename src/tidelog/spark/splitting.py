"""Tasks from ranges: large ranges of offsets are split into parts of similar size.

`maxRecordsPerPartition` limits the offsets of a task, and `minPartitions` requests a number of
tasks. If both options are set, `maxRecordsPerPartition` applies first, as in the connector, and
more splits follow if there are fewer tasks than `minPartitions`. No task is empty, and the tasks of
a partition together have each of its offsets once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.spark.planning import OffsetRange


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None = None
) -> list[OffsetRange]:
    """Return the tasks of ranges in order; if neither option is set, each range is one task."""
    tasks = list(ranges)
    if max_records is not None:
        counts = [-(-each.size // max_records) for each in tasks]
        tasks = _divided(tasks, counts)
    if min_partitions is None or min_partitions <= len(tasks):
        return tasks
    parts = [1] * len(tasks)
    for _ in range(min_partitions - len(tasks)):
        largest = max(range(len(tasks)), key=lambda i: (tasks[i].size / parts[i], -i), default=None)
        if largest is None or tasks[largest].size <= parts[largest]:
            break
        parts[largest] += 1
    return _divided(tasks, parts)


def _divided(ranges: Sequence[OffsetRange], counts: Sequence[int]) -> list[OffsetRange]:
    parts: list[OffsetRange] = []
    for each, count in zip(ranges, counts, strict=True):
        cuts = [each.start + each.size * i // count for i in range(count + 1)]
        parts += [OffsetRange(each.tp, cuts[i], cuts[i + 1], each.topic_id) for i in range(count)]
    return parts
