"""Checks of producer snapshots and of transaction indexes.

A producer snapshot has the last batches of each producer before the snapshot's offset. A batch in a
snapshot must be in the log, unless compaction or retention removed the batch. A transaction index
has the aborted transactions of its segment, in the order of their last offsets. A snapshot beyond
the recovery point may be stale or empty after a crash; a finding about such a snapshot is a notice.
Sources: ProducerStateManager.readSnapshot, TransactionIndex.sanityCheck.
"""

from __future__ import annotations

import os
import struct
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tidelog.spark.pipelines.audit.findings import AuditFinding, Collector, FindingKind, Severity
from tidelog.spark.pipelines.audit.ranges import RangeJob, RangeResult
from tidelog.spark.segments.batch_scan import Rows

_HEADER: Final = struct.Struct(">hIi")
_VERSION: Final = 1
_CRC_FROM: Final = 6
_ROW: Final = np.dtype(
    [("producer_id", ">i8"), ("epoch", ">i2"), ("last_sequence", ">i4"), ("last_offset", ">i8"),
     ("delta", ">i4"), ("timestamp", ">i8"), ("coordinator_epoch", ">i4"),
     ("transaction_start", ">i8")]
)  # fmt: skip
_ABORTED: Final = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first", ">i8"), ("last", ">i8"),
     ("stable", ">i8")]
)  # fmt: skip
#: Sequence numbers wrap around after this number.
_MAX_SEQUENCE: Final = 2**31 - 1
SnapshotRows = npt.NDArray[np.void]
Snapshot = tuple[str, int, bool]


def read_snapshot(snapshot: Snapshot) -> tuple[SnapshotRows, list[AuditFinding]]:
    """Return the entries of a producer snapshot, and the findings about the file itself."""
    path, offset, is_flushed = snapshot
    severity = Severity.DAMAGE if is_flushed else Severity.NOTICE
    found = Collector(path)
    data = _content(path, found)
    rows = np.empty(0, dtype=_ROW)
    if data is None:
        return rows, found.all()
    problem = _problem_of(data)
    if problem:
        found.add(FindingKind.SNAPSHOT, problem, 0, None, severity)
        return rows, found.all()
    rows = np.frombuffer(data, dtype=_ROW, offset=_HEADER.size)
    last, start = rows["last_offset"], rows["transaction_start"]
    wrong = (rows["producer_id"] < 0) | (rows["delta"] < 0) | (last < -1) | (start < -1)
    wrong |= (last >= offset) | (start >= offset) | ((last >= 0) & (rows["delta"] > last))
    for place in np.flatnonzero(wrong):
        found.add(
            FindingKind.SNAPSHOT,
            f"the entry of producer {int(rows['producer_id'][place])} has the last offset"
            f" {int(last[place])} and the transaction start {int(start[place])}, and the snapshot"
            f" covers the offsets below {offset}",
            _HEADER.size + int(place) * _ROW.itemsize,
            int(last[place]),
            severity,
        )
    return rows[~wrong], found.all()


def _problem_of(data: bytes) -> str:
    """Return why the bytes are no producer snapshot; an empty text for a valid snapshot."""
    if len(data) < _HEADER.size:
        return f"{len(data)} bytes are fewer than the header of a producer snapshot"
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        return f"the version is {version}, only {_VERSION} is known"
    computed = crc32c(data[_CRC_FROM:])
    if crc != computed:
        return (
            f"the producer snapshot has the checksum {crc:#010x}, its bytes give {computed:#010x}"
        )
    if count < 0 or count * _ROW.itemsize != len(data) - _HEADER.size:
        return f"{len(data) - _HEADER.size} bytes are not {count} entries of {_ROW.itemsize}"
    return ""


def _content(path: str, found: Collector) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None  # the broker deleted the file since its listing
    except OSError as error:
        found.add(FindingKind.UNREADABLE, f"the file cannot be read: {error.strerror}")
        return None


class ProducerChecks:
    """The producer snapshots and the transaction index that belong to one range of a log file."""

    def __init__(self, job: RangeJob, result: RangeResult) -> None:
        self._job = job
        self._result = result
        self._snapshots: list[tuple[Snapshot, SnapshotRows, Collector]] = []
        self._largest = -1
        for snapshot in job.snapshots:
            rows, findings = read_snapshot(snapshot)
            if job.start == 0:
                result.findings += findings
            if len(rows):
                self._snapshots.append((snapshot, rows, Collector(snapshot[0])))

    def fold(self, rows: Rows) -> None:
        """Compare the snapshots' entries for the given batches with these batches."""
        for snapshot, entries, found in self._snapshots:
            self._compare(rows, snapshot, entries, found)

    def finish(self) -> None:
        """Add the findings to the result; the first range also checks the transaction index."""
        for _, _, found in self._snapshots:
            self._result.findings += found.all()
        if self._job.start == 0:
            self._check_transactions()

    def _compare(
        self, rows: Rows, snapshot: Snapshot, entries: SnapshotRows, found: Collector
    ) -> None:
        places = np.searchsorted(rows["last"], entries["last_offset"])
        inside = places < len(rows)
        places = places.clip(max=len(rows) - 1)
        batches = rows[places]
        # Compaction may have removed the batch of an entry, but never changes the last offset of a
        # batch that stays.
        inside &= (batches["last"] == entries["last_offset"]) & (
            batches["crc"] == batches["computed_crc"]
        )
        spans = batches["last"] - batches["base"]
        sequences = (batches["base_sequence"] + spans) & _MAX_SEQUENCE
        wrong = inside & (
            (batches["producer_id"] != entries["producer_id"])
            | (sequences != entries["last_sequence"])
            | (spans != entries["delta"])
        )
        for place in np.flatnonzero(wrong):
            entry, batch = entries[place], batches[place]
            found.add(
                FindingKind.SNAPSHOT,
                f"the entry of producer {int(entry['producer_id'])} has the sequence"
                f" {int(entry['last_sequence'])} at offset {int(entry['last_offset'])}; the batch"
                f" there has producer {int(batch['producer_id'])}, sequence"
                f" {int(sequences[place])}",
                None,
                int(entry["last_offset"]),
                Severity.DAMAGE if snapshot[2] else Severity.NOTICE,
            )

    def _check_transactions(self) -> None:
        job = self._job
        path = f"{job.path.removesuffix('.log')}.txnindex"
        if not any(name.endswith(".txnindex") for name, _, _ in job.beside):
            return
        found = Collector(path)
        data = _content(path, found) or b""
        severity = Severity.DAMAGE if job.is_flushed else Severity.NOTICE
        rest = len(data) % _ABORTED.itemsize
        if rest:
            found.add(
                FindingKind.TRANSACTION_INDEX,
                f"{len(data)} bytes are not whole entries of {_ABORTED.itemsize}",
                len(data) - rest,
                None,
                severity,
            )
        entries = np.frombuffer(data[: len(data) - rest], dtype=_ABORTED)
        last = entries["last"].astype(np.int64)
        before = np.concatenate(([job.base_offset - 1], last[:-1]))
        wrong = (entries["version"] != 0) | (last < before) | (entries["first"] > last)
        for place in np.flatnonzero(wrong):
            found.add(
                FindingKind.TRANSACTION_INDEX,
                f"entry {place} has version {int(entries['version'][place])} and the offsets"
                f" {int(entries['first'][place])} to {int(last[place])}, and the one before ends"
                f" at {int(before[place])}",
                int(place) * _ABORTED.itemsize,
                int(last[place]),
                severity,
            )
        self._result.findings += found.all()


def check_idle_snapshots(snapshots: tuple[Snapshot, ...]) -> list[AuditFinding]:
    """Return the findings about the producer snapshots of a replica without any batch."""
    return [finding for each in snapshots for finding in read_snapshot(each)[1]]


def companion(log_path: str, kind: str) -> str:
    """Return the path of a segment's index file; an interrupted swap leaves the suffix `.swap`."""
    stem = log_path.removesuffix(".swap").removesuffix(".log")
    path = f"{stem}.{kind}"
    is_swapped = log_path.endswith(".swap") or not os.path.exists(path)
    return f"{path}.swap" if is_swapped and os.path.exists(f"{path}.swap") else path
