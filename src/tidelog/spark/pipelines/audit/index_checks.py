"""Checks of a segment's offset index and time index against its batches.

Kafka writes at most one offset index entry for all batches of an append: the position of the first
batch, and the last offset of the append. An offset index entry's offset may lie after the batch at
the entry's position, but must lie before the batch of the next entry. A time index entry has the
largest timestamp so far, and an offset in the batch with this timestamp. Zeros after the entries
are Kafka's preallocation. Indexes above the recovery point may be stale after a crash; a finding
about such an index is a notice, because the start of a broker rebuilds it. Sources: OffsetIndex,
TimeIndex, LogSegment.append.
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np
import numpy.typing as npt

from tidelog.spark.pipelines.audit.batch_checks import Columns
from tidelog.spark.pipelines.audit.findings import Collector, FindingKind, Severity
from tidelog.spark.pipelines.audit.producer_checks import companion
from tidelog.spark.pipelines.audit.ranges import RangeJob, RangeResult

Ints = npt.NDArray[np.int64]

_OFFSET_ENTRY: Final = np.dtype([("relative", ">i4"), ("position", ">u4")])
_TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative", ">i4")])


class IndexChecks:
    """The index entries for one range of a log file, compared with the batches of the range."""

    def __init__(self, job: RangeJob, result: RangeResult) -> None:
        self._job = job
        self._result = result
        self._severity = Severity.DAMAGE if job.is_flushed else Severity.NOTICE
        index, times = companion(job.path, "index"), companion(job.path, "timeindex")
        self._index = Collector(index)
        self._times = Collector(times)
        self._offsets, self._positions = self._offset_entries(index)
        self._stamps, self._stamped = self._time_entries(times)
        if job.start == 0 and job.is_flushed:
            self._check_presence(index, FindingKind.INDEX, self._index)
            self._check_presence(times, FindingKind.TIME_INDEX, self._times)
        self._largest = -1
        #: Offset in the previous index entry; the batch of the next entry must begin above this
        #: offset.
        self._entry_before = -1
        #: Ranges of bytes that are not batches; index entries that point into these bytes are not
        #: judged.
        self._skipped: list[tuple[int, int]] = []

    def fold(self, columns: Columns) -> None:
        """Compare the index entries for the given batches with these batches."""
        self._fold_offsets(columns)
        self._fold_times(columns)

    def skip(self, start: int, end: int) -> None:
        """Exclude index entries that point into the given bytes, which are not a batch."""
        self._skipped.append((start, end))

    def finish(self) -> None:
        """Add the findings about the offset index and the time index to the result."""
        self._result.findings += self._index.all() + self._times.all()

    def _check_presence(self, path: str, kind: FindingKind, found: Collector) -> None:
        """Report an index file that is missing, although the segment was flushed."""
        if not os.path.exists(path) and os.path.exists(self._job.path):
            found.add(kind, "the file is missing, and the segment was flushed with its indexes")

    def _offset_entries(self, path: str) -> tuple[Ints, Ints]:
        """Return offsets and positions of the offset index's entries in this range; check the
        entries' order.
        """
        job = self._job
        entries = _entries(path, _OFFSET_ENTRY, self._index, self._severity)
        offsets = entries["relative"].astype(np.int64) + job.base_offset
        positions = entries["position"].astype(np.int64)
        used = np.flatnonzero((offsets != job.base_offset) | (positions != 0))
        count = int(used[-1]) + 1 if len(used) else 0
        offsets, positions = offsets[:count], positions[:count]
        if job.start == 0:
            wrong = np.flatnonzero((np.diff(offsets) <= 0) | (np.diff(positions) <= 0))
            if len(wrong):
                place = int(wrong[0]) + 1
                self._index.add(
                    FindingKind.INDEX,
                    f"entry {place} (offset {offsets[place]}, byte {positions[place]}) does not"
                    f" rise above the one before",
                    place * _OFFSET_ENTRY.itemsize,
                    int(offsets[place]),
                    self._severity,
                )
        here = (positions >= job.start) & (positions < job.end)
        beyond = np.flatnonzero(positions >= job.size)
        if len(beyond) and job.end == job.size and job.is_flushed:
            place = int(beyond[0])
            self._index.add(
                FindingKind.INDEX,
                f"entry {place} has offset {offsets[place]} at byte {positions[place]}, and the log"
                f" file ends at byte {job.size}",
                place * _OFFSET_ENTRY.itemsize,
                int(offsets[place]),
            )
        if here.any():
            self._result.indexed = int(offsets[here].max())
        return offsets[here], positions[here]

    def _time_entries(self, path: str) -> tuple[Ints, Ints]:
        entries = _entries(path, _TIME_ENTRY, self._times, self._severity)
        stamps = entries["timestamp"].astype(np.int64)
        offsets = entries["relative"].astype(np.int64) + self._job.base_offset
        used = np.flatnonzero((stamps != 0) | (offsets != self._job.base_offset))
        count = int(used[-1]) + 1 if len(used) else 0
        stamps, offsets = stamps[:count], offsets[:count]
        if os.path.exists(path):
            self._result.stamped = int(stamps[-1]) if count else -1
        if self._job.start == 0:
            wrong = np.flatnonzero((np.diff(stamps) <= 0) | (np.diff(offsets) < 0))
            if len(wrong):
                place = int(wrong[0]) + 1
                self._times.add(
                    FindingKind.TIME_INDEX,
                    f"entry {place} (timestamp {stamps[place]}, offset {offsets[place]}) does not"
                    f" rise above the one before",
                    place * _TIME_ENTRY.itemsize,
                    int(offsets[place]),
                    self._severity,
                )
        return stamps, offsets

    def _fold_offsets(self, columns: Columns) -> None:
        end = int(columns.positions[-1])
        mine = (self._positions >= columns.positions[0]) & (self._positions <= end)
        positions, offsets = self._positions[mine], self._offsets[mine]
        if not len(positions):
            return
        places = np.searchsorted(columns.positions, positions).clip(max=len(columns.positions) - 1)
        exact = columns.positions[places] == positions
        before = np.concatenate(([self._entry_before], offsets[:-1]))
        wrong = ~exact | (
            columns.sound[places]
            & ((offsets < columns.lasts[places]) | (before >= columns.bases[places]))
        )
        self._entry_before = int(offsets[-1])
        for place in np.flatnonzero(wrong):
            position, offset = int(positions[place]), int(offsets[place])
            if any(start <= position < end for start, end in self._skipped):
                continue
            batch = int(places[place])
            there = (
                f"the batch there has offsets {int(columns.bases[batch])} to"
                f" {int(columns.lasts[batch])}"
                if exact[place]
                else "no batch begins there"
            )
            self._index.add(
                FindingKind.INDEX,
                f"an entry has offset {offset} at byte {position} of the log, and {there}",
                self._place_of(position),
                offset,
                self._severity,
            )

    def _place_of(self, position: int) -> int | None:
        """Return the byte position of a batch's entry in the offset index; None without an entry.

        `position` is the position of the batch in the log file.
        """
        entries = _entries(companion(self._job.path, "index"), _OFFSET_ENTRY, None)
        found = np.flatnonzero(entries["position"] == position)
        return int(found[0]) * _OFFSET_ENTRY.itemsize if len(found) else None

    def _fold_times(self, columns: Columns) -> None:
        first, last = int(columns.bases[0]), int(columns.lasts[-1])
        stamps = np.where(columns.sound, columns.max_timestamps, -1)
        largest = np.maximum.accumulate(np.maximum(stamps, self._largest))
        self._largest = int(largest[-1])
        mine = np.flatnonzero((self._stamped >= first) & (self._stamped <= last))
        if not len(mine):
            return
        places = np.searchsorted(columns.lasts, self._stamped[mine])
        places = places.clip(max=len(columns.lasts) - 1)
        wrong = columns.sound[places] & (
            (columns.max_timestamps[places] != self._stamps[mine])
            | (columns.bases[places] > self._stamped[mine])
            | (largest[places] > self._stamps[mine])
        )
        for place in np.flatnonzero(wrong):
            entry, batch = int(mine[place]), int(places[place])
            self._times.add(
                FindingKind.TIME_INDEX,
                f"entry {entry} has timestamp {int(self._stamps[entry])} for offset"
                f" {int(self._stamped[entry])}; the batch of offsets {int(columns.bases[batch])} to"
                f" {int(columns.lasts[batch])} has {int(columns.max_timestamps[batch])}, the"
                f" largest so far is {int(largest[batch])}",
                entry * _TIME_ENTRY.itemsize,
                int(self._stamped[entry]),
                self._severity,
            )


def _entries(
    path: str,
    entry: np.dtype[np.void],
    findings: Collector | None,
    severity: Severity = Severity.NOTICE,
) -> npt.NDArray[np.void]:
    """Return the entries of an index file; empty if there is no file."""
    try:
        with open(path, "rb") as file:
            data = file.read(os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        data = b""
    except OSError as error:
        if findings is not None:
            findings.add(FindingKind.UNREADABLE, f"the file cannot be read: {error.strerror}")
        data = b""
    rest = len(data) % entry.itemsize
    if rest and findings is not None:
        kind = FindingKind.INDEX if entry is _OFFSET_ENTRY else FindingKind.TIME_INDEX
        findings.add(
            kind,
            f"{len(data)} bytes are not whole entries of {entry.itemsize}",
            len(data) - rest,
            None,
            severity,
        )
    return np.frombuffer(data[: len(data) - rest], dtype=entry)
