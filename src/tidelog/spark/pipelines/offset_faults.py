"""Offsets that files lack or have twice, with the files: a pure comparison of spans.

The spans of each file come from a count of the file (`counting`). The module uses neither files nor
Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from operator import attrgetter

from tidelog.core.dataclass import dataclass


class OffsetFaultKind(StrEnum):
    """What is wrong with a range of offsets."""

    MISSING = "missing"
    DOUBLED = "doubled"


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Offsets `[start, end)` of a partition without a gap in a file; `doubled` rows repeat some."""

    file: str
    partition: int
    start: int
    end: int
    doubled: int = 0


@dataclass(frozen=True, slots=True)
class OffsetFault:
    """Offsets `[start, end)` that no file has, or that several rows have.

    `files` are the files on both sides of missing offsets, or the files with the rows.
    """

    kind: OffsetFaultKind
    partition: int
    start: int
    end: int
    files: tuple[str, ...]


def offset_faults(spans: Iterable[FileSpan]) -> list[OffsetFault]:
    """Return the faults of all partitions, in order of partition and offset."""
    by_partition: dict[int, list[FileSpan]] = {}
    for span in spans:
        by_partition.setdefault(span.partition, []).append(span)
    found: list[OffsetFault] = []
    for partition in sorted(by_partition):
        ordered = sorted(by_partition[partition], key=attrgetter("start", "end", "file"))
        faults = sorted(_faults(ordered), key=attrgetter("start", "end"))
        found += _joined(faults)
    return found


def _faults(ordered: list[FileSpan]) -> Iterator[OffsetFault]:
    """Yield the faults of one partition, whose spans are in order of their starts."""
    open_spans: list[FileSpan] = []
    last: FileSpan | None = None
    for span in ordered:
        if last is not None and span.start > last.end:
            files = (last.file, span.file)
            yield OffsetFault(OffsetFaultKind.MISSING, span.partition, last.end, span.start, files)
        if span.doubled:
            yield _doubled(span, span.end, span.file)
        open_spans = [each for each in open_spans if each.end > span.start]
        for each in open_spans:
            yield _doubled(span, min(span.end, each.end), each.file, span.file)
        open_spans.append(span)
        if last is None or span.end > last.end:
            last = span


def _doubled(span: FileSpan, end: int, *files: str) -> OffsetFault:
    names = tuple(dict.fromkeys(files))
    return OffsetFault(OffsetFaultKind.DOUBLED, span.partition, span.start, end, names)


def _joined(faults: Iterable[OffsetFault]) -> list[OffsetFault]:
    """Return faults with neighbours of the same files joined."""
    joined: list[OffsetFault] = []
    for fault in faults:
        before = joined[-1] if joined else None
        if (
            before is not None
            and (before.kind, before.files) == (fault.kind, fault.files)
            and fault.kind is OffsetFaultKind.DOUBLED
            and fault.start <= before.end
        ):
            end = max(before.end, fault.end)
            joined[-1] = OffsetFault(before.kind, before.partition, before.start, end, before.files)
        else:
            joined.append(fault)
    return joined
