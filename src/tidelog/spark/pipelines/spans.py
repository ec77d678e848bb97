"""Spans of consecutive offsets: the spans of a task's rows, and the counts over all tasks.

A task turns rows into spans `[start, end)` without a gap, with the number of repeated rows. Rows in
order of offset become few spans; other orders are counted correctly, too. The module uses Arrow,
not Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
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

Span = tuple[int, int, int, int]


def spans_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the spans of rows with the columns partition and offset."""
    held: list[Span] = []
    for batch in batches:
        partitions = batch.column("partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        for partition in np.unique(partitions):
            same = partitions == partition
            ours = offsets if same.all() else offsets[same]
            for span in _spans(int(partition), ours):
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
        yield _batch(held)


def _spans(partition: int, offsets: np.ndarray) -> list[Span]:
    """Return the spans of one partition's offsets."""
    if offsets.size == 0:
        return []
    steps = np.diff(offsets)
    if (steps < 0).any():
        offsets = np.sort(offsets)
        steps = np.diff(offsets)
    breaks = np.flatnonzero(steps > 1)
    firsts = np.concatenate(([0], breaks + 1))
    lasts = np.concatenate((breaks, [offsets.size - 1]))
    starts, ends = offsets[firsts], offsets[lasts] + 1
    doubled = (lasts - firsts + 1) - (ends - starts)
    return [
        (partition, int(start), int(end), int(more))
        for start, end, more in zip(starts, ends, doubled, strict=True)
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
