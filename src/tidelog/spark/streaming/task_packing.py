"""The tasks of a micro-batch: small ranges of several partitions share a task.

A task costs Spark some 20 to 40 ms, regardless of its size. A stream that keeps up reads a few
hundred records of each partition per batch, so a task for each partition would cost more than the
reading. Ranges are packed into tasks of up to PACKED_OFFSETS; a larger range has a task of its own.
If the user sets `minPartitions` or `maxRecordsPerPartition`, no ranges are packed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.spark.planning import OffsetRange

#: Maximum number of offsets in a task of packed ranges: reading that many records takes about as
#: long as starting a task.
PACKED_OFFSETS: Final = 25_000


def pack_ranges(
    ranges: Iterable[OffsetRange], most: int = PACKED_OFFSETS
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task: every range, largest first, joins the first task with room.

    The tasks depend only on the ranges, so that a repeated batch has the same tasks.
    """
    tasks: list[list[OffsetRange]] = []
    sizes: list[int] = []
    for each in sorted(ranges, key=lambda it: (-it.size, it.tp)):
        place = next((i for i, size in enumerate(sizes) if size + each.size <= most), None)
        if place is None:
            tasks.append([each])
            sizes.append(each.size)
        else:
            tasks[place].append(each)
            sizes[place] += each.size
    return [tuple(sorted(task, key=lambda it: (it.tp, it.start))) for task in tasks]
