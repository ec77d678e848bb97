"""Search for offsets that the files of a table lack or have twice, by a comparison of spans.

A span is a range of offsets that a file has; the spans come from a count of each file (`counting`).
Each fault names the files that it concerns. The module opens no file and does not use Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter

from tidelog.core.dataclass import dataclass


class OffsetFaultKind(StrEnum):
    """The kind of fault in a range of offsets."""

    MISSING = "missing"
    DOUBLED = "doubled"
    #: Offsets of rows that lie outside the offset ranges of all commits.
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Offsets `[start, end)` of a partition that a file has without a gap.

    Spans of one file overlap at its repeated offsets; `doubled` counts repeats that no span names.
    """

    file: str
    partition: int
    start: int
    end: int
    doubled: int = 0


@dataclass(frozen=True, slots=True)
class OffsetFault:
    """Offsets `[start, end)` that no file has, that several rows have, or that are stray.

    `files` are the files on both sides of missing offsets, or the files with doubled or stray rows.
    """

    kind: OffsetFaultKind
    partition: int
    start: int
    end: int
    files: tuple[str, ...]
    #: Whether all offsets of the range are at fault; False if the range has so many single faults
    #: that they are not named one by one.
    is_exact: bool = True
    #: Versions whose commits claim to contain the missing offsets.
    versions: tuple[int, ...] = ()


def offset_faults(spans: Iterable[FileSpan]) -> list[OffsetFault]:
    """Return the faults of all partitions, in order of partition and offset."""
    by_partition: dict[int, list[FileSpan]] = {}
    for span in spans:
        by_partition.setdefault(span.partition, []).append(span)
    found: list[OffsetFault] = []
    for partition in sorted(by_partition):
        ordered = sorted(by_partition[partition], key=attrgetter("start", "end", "file"))
        found += _joined(_faults(ordered))
    return found


def _faults(ordered: list[FileSpan]) -> Iterator[OffsetFault]:
    """Yield the faults of one partition, whose spans are in order of their starts.

    No span starts or ends inside the range of a fault, so all its offsets are in the same files.
    """
    bounds = sorted({bound for span in ordered for bound in (span.start, span.end)})
    coming = deque(ordered)
    last = ordered[0]
    open_spans: list[FileSpan] = []
    for start, end in pairwise(bounds):
        open_spans = [span for span in open_spans if span.end > start]
        while coming and coming[0].start == start:
            open_spans.append(coming.popleft())
            last = max(last, open_spans[-1], key=attrgetter("end"))
        if not open_spans:
            files: tuple[str, ...] = (last.file, coming[0].file)
            yield OffsetFault(OffsetFaultKind.MISSING, last.partition, start, end, files)
        elif len(open_spans) > 1 or open_spans[0].doubled:
            files = tuple(sorted({span.file for span in open_spans}))
            is_exact = len(open_spans) > 1
            yield OffsetFault(OffsetFaultKind.DOUBLED, last.partition, start, end, files, is_exact)


def _joined(faults: Iterable[OffsetFault]) -> list[OffsetFault]:
    """Join faults of the same files whose offset ranges are adjacent."""
    joined: list[OffsetFault] = []
    for fault in faults:
        if (
            joined
            and joined[-1].end == fault.start
            and fault == replace(joined[-1], start=fault.start, end=fault.end)
        ):
            joined[-1] = replace(joined[-1], end=fault.end)
        else:
            joined.append(fault)
    return joined
