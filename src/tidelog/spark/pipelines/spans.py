"""Spans of consecutive offsets: the spans of a task's rows, and the counts over all tasks.

A task turns rows into spans `[start, end)` without a gap. Rows in order of offset become few spans;
other orders are counted correctly, too. Rows that repeat an offset become spans of their own, which
overlap the first rows' spans, so a proof can name the repeated offsets. If spans repeat offsets too
often, `doubled` only counts the surplus rows. The module uses Arrow, not Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.continuity import Gap, PartitionCount

#: The spans' Arrow schema.
SPANS: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("doubled", pa.int64()),
    ]
)
#: Maximum number of spans that a task collects before it yields them.
_HELD: Final = 50_000
#: Maximum number of spans of repeated offsets of one task; further ones are only counted.
_MOST_REPEATS: Final = 1_000

Span = tuple[int, int, int, int]
Ints = npt.NDArray[np.int64]


def spans_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the spans of rows with the columns partition and offset."""
    held: list[Span] = []
    repeats: list[Span] = []
    for batch in batches:
        partitions = batch.column("partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        for partition in np.unique(partitions):
            same = partitions == partition
            ours = offsets if same.all() else offsets[same]
            spans, repeated = _spans(int(partition), ours, _MOST_REPEATS - len(repeats))
            repeats += repeated
            for span in spans:
                # Usually the first span of an Arrow batch continues the last span of the previous
                # Arrow batch.
                if held and held[-1][0] == span[0] and held[-1][2] == span[1]:
                    before = held.pop()
                    span = (span[0], before[1], span[2], before[3] + span[3])
                held.append(span)
        if len(held) > _HELD:
            yield _batch(held[:-1])
            held = held[-1:]
    if held:
        yield _batch(held + repeats)


def _spans(partition: int, offsets: Ints, most: int) -> tuple[list[Span], list[Span]]:
    """Return the spans of one partition's offsets, and at most `most` spans of repeated offsets."""
    steps = np.diff(offsets)
    if (steps > 0).all():
        return _runs(partition, offsets, np.zeros_like(offsets)), []
    distinct, counts = np.unique(offsets, return_counts=True)
    again = counts > 1
    repeats = _runs(partition, distinct[again], counts[again] - 2)
    if len(repeats) > most:
        return _runs(partition, distinct, counts - 1), []
    return _runs(partition, distinct, np.zeros_like(counts)), repeats


def _runs(partition: int, offsets: Ints, surplus: Ints) -> list[Span]:
    """Return the spans of ascending offsets; `surplus` counts the repeated rows of each offset."""
    if offsets.size == 0:
        return []
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    firsts = np.concatenate(([0], breaks + 1))
    lasts = np.concatenate((breaks, [offsets.size - 1]))
    doubled = np.add.reduceat(surplus, firsts)
    return [
        (partition, int(start), int(end) + 1, int(more))
        for start, end, more in zip(offsets[firsts], offsets[lasts], doubled, strict=True)
    ]


def _batch(spans: list[Span]) -> pa.RecordBatch:
    columns = zip(*spans, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SPANS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SPANS)


def counts_of(topic: str, spans: pa.Table) -> dict[TopicPartition, PartitionCount]:
    """Return the counts of each partition from all spans, in any order."""
    columns = [spans.column(name).to_pylist() for name in SPANS.names]
    counts: dict[TopicPartition, PartitionCount] = {}
    by_partition: dict[int, list[tuple[int, int, int]]] = {}
    for partition, start, end, doubled in zip(*columns, strict=True):
        by_partition.setdefault(partition, []).append((start, end, doubled))
    for partition, parts in sorted(by_partition.items()):
        counts[TopicPartition(topic, partition)] = _merged(sorted(parts))
    return counts


def _merged(parts: list[tuple[int, int, int]]) -> PartitionCount:
    """Return the counts of a partition from its spans, which are sorted by start."""
    first, reached, _ = parts[0]
    reached = first
    rows = distinct = 0
    gaps: list[Gap] = []
    for start, end, doubled in parts:
        if start > reached:
            gaps.append(Gap(reached, start))
        rows += end - start + doubled
        distinct += max(0, end - max(start, reached))
        reached = max(reached, end)
    return PartitionCount(rows, distinct, first, reached - 1, tuple(gaps))
