"""Byte ranges of log files: the work of a task, and its result.

The first range of a file begins at byte 0. Each further range begins at the position of an offset
index entry, if a batch header is there. An index may be wrong, so ranges must chain: each range
must begin where the previous range found the end of its last batch. If a range begins at another
position, the whole file is scanned again as one range, without its index. A log file has at most 2
GiB, so a scan of a whole file takes seconds. The module reads no batch; jobs and results can be
written as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from itertools import pairwise
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MIB
from tidelog.spark.pipelines.audit.findings import AuditFinding
from tidelog.spark.segments.batch_scan import HEADER_BYTES, MAGIC, header_at
from tidelog.spark.segments.directory_files import log_name
from tidelog.spark.segments.listing import ListedSegment, Replica

#: Bytes of one range. The result of each range is kept, so a crash repeats at most one range per
#: task.
RANGE_BYTES: Final = 256 * MIB
#: Binary logarithm of a bucket's size: 2^16 offsets share one digest. Replicas are compared digest
#: by digest.
BUCKET_BITS: Final = 16
_ENTRY_BYTES: Final = 8
#: Version of results; increment it when the scan of the same bytes gives another result.
_VERSION: Final = 2
#: A job with this value as its high watermark makes digests of all offsets.
NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RangeJob:
    """Bytes `[start, end)` of a log file, to be scanned by one task."""

    path: str
    base_offset: int
    #: Size at the listing; together with `mtime_ns` and `inode` it identifies the content of the
    #: file.
    size: int
    mtime_ns: int
    inode: int
    start: int
    end: int
    #: The partition's high watermark; digests cover the batches that end below it.
    high: int
    #: Whether the file was flushed, so that not even a crash can leave a wrong index.
    is_flushed: bool
    #: Name, size and modification time of each other file of the segment.
    beside: tuple[tuple[str, int, int], ...] = ()
    #: The producer snapshots between this segment and the next one: path, offset, whether the
    #: snapshot lies below the recovery point.
    snapshots: tuple[tuple[str, int, bool], ...] = ()

    @property
    def key(self) -> str:
        """Name of the kept result, which is equal for the same bytes of the same file."""
        values = [_VERSION, self.path, self.base_offset, self.size, self.mtime_ns, self.inode]
        values += [self.start, self.end, self.is_flushed, self.beside, self.snapshots]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:40]


@dataclass(slots=True)
class RangeResult:
    """The result of the scan of one range."""

    start: int
    end: int
    high: int
    #: Position after the last batch, or after the last bytes that are not a batch.
    stopped_at: int
    batches: int = 0
    records: int = 0
    #: First offset of the range's first batch; `first_last` is this batch's last offset, and `last`
    #: the last offset of the range. None without a batch.
    first: int | None = None
    first_last: int | None = None
    last: int | None = None
    #: Leader epochs in the range: epoch, first offset of the epoch, last offset of the batch before
    #: it (None if unknown).
    epochs: list[tuple[int, int, int | None]] = field(default_factory=list)
    max_timestamp: int = -1
    #: Number of batches and sum of their digests, by bucket of 2^BUCKET_BITS offsets.
    buckets: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: The first ranges of missing offsets: (from, to, position of the next batch).
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    gap_count: int = 0
    #: Number of offsets without a record inside of batches; `hollow_at` is the position of the
    #: first batch with such an offset.
    hollow: int = 0
    hollow_at: int | None = None
    #: Last offset in the offset index's entries for this range; None without an entry.
    indexed: int | None = None
    #: Timestamp of the last entry of the segment's time index; -1 without an entry, None without
    #: the file.
    stamped: int | None = None
    #: Offsets (from, to) that damage hides or makes uncertain.
    damaged: list[tuple[int, int]] = field(default_factory=list)
    #: Bytes at the end of the file that are not a whole batch: position, reason, whether all are
    #: zeros.
    tail: tuple[int, str, bool] | None = None
    findings: list[AuditFinding] = field(default_factory=list)
    #: Whether the file vanished or shrank since its listing.
    is_gone: bool = False

    def is_valid_for(self, high: int) -> bool:
        """Return whether the digests would be the same with `high` as the high watermark."""
        return self.high == high or self.last is None or self.last < min(self.high, high)

    def to_json(self) -> dict[str, Any]:
        """Return this result of a range as JSON values."""
        values = asdict(self)
        values["buckets"] = [[key, *value] for key, value in self.buckets.items()]
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RangeResult:
        """Return the result of a range from the JSON values of `to_json`.

        Raises ValueError, KeyError, TypeError.
        """
        values = dict(values)
        values["findings"] = [AuditFinding.from_json(each) for each in values["findings"]]
        values["buckets"] = {key: (count, total) for key, count, total in values["buckets"]}
        for name in ("epochs", "gaps", "damaged"):
            values[name] = [tuple(each) for each in values[name]]
        values["tail"] = tuple(values["tail"]) if values["tail"] else None
        return cls(**values)


def plan_jobs(
    replica: Replica, high: int, *, range_bytes: int = RANGE_BYTES, whole: Iterable[str] = ()
) -> list[RangeJob]:
    """Return the ranges of a replica's log files. Each log file in `whole` gets one range."""
    unsplit = frozenset(whole)
    jobs: list[RangeJob] = []
    beside = _beside(replica)
    for segment, following in _with_next(replica.segments):
        flushed = replica.is_clean or (
            following is not None
            and replica.recovery_point is not None
            and following.base_offset <= replica.recovery_point
        )
        cuts = [] if segment.path in unsplit else split_points(segment, range_bytes)
        bounds = [0, *cuts, segment.size]
        jobs += [
            RangeJob(
                segment.path,
                segment.base_offset,
                segment.size,
                segment.mtime_ns,
                segment.inode,
                start,
                end,
                high,
                flushed,
                tuple(beside.get(segment.base_offset, ())),
                snapshots_of(replica, segment, following),
            )
            for start, end in pairwise(bounds)
            if end > start
        ]
    return jobs


def snapshots_of(
    replica: Replica, segment: ListedSegment, following: ListedSegment | None
) -> tuple[tuple[str, int, bool], ...]:
    """Return producer snapshots up to the next segment; the first segment also gets older ones."""
    first = replica.segments[0].base_offset
    low = -1 if segment.base_offset == first else segment.base_offset
    high = NO_LIMIT if following is None else following.base_offset
    point = NO_LIMIT if replica.is_clean else replica.recovery_point or 0
    return tuple(
        (f"{replica.path}/{log_name(offset, 'snapshot')}", offset, offset <= point)
        for offset in replica.snapshots
        if low < offset <= high
    )


def _beside(replica: Replica) -> dict[int, list[tuple[str, int, int]]]:
    """Return name, size and time of the other files of each segment, by base offset."""
    found: dict[int, list[tuple[str, int, int]]] = {}
    for other in replica.others:
        name = os.path.basename(other.path)
        if name[:20].isdecimal():
            found.setdefault(int(name[:20]), []).append((name, other.size, other.mtime_ns))
    return found


def split_points(segment: ListedSegment, range_bytes: int) -> list[int]:
    """Return positions of batches from the offset index, about `range_bytes` apart."""
    if segment.size <= range_bytes + range_bytes // 2:
        return []
    try:
        with open(segment.companion("index"), "rb") as index, open(segment.path, "rb") as log:
            entries = os.fstat(index.fileno()).st_size // _ENTRY_BYTES
            found: list[int] = []
            for wanted in range(range_bytes, segment.size - range_bytes // 2, range_bytes):
                place = bisect_left(range(entries), wanted, key=lambda n: _position(index, n))
                at = _position(index, place) if place < entries else segment.size
                if (found[-1] if found else 0) < at < segment.size and _begins(log, segment, at):
                    found.append(at)
            return found
    except OSError:
        return []  # without an index the file is one range


def _position(index: Any, number: int) -> int:
    data = os.pread(index.fileno(), 4, number * _ENTRY_BYTES + 4)
    # The index of an active segment ends with preallocated zeros. A zero counts as a position
    # beyond the end of the file.
    return int.from_bytes(data, "big") or NO_LIMIT


def _begins(log: Any, segment: ListedSegment, at: int) -> bool:
    header = os.pread(log.fileno(), HEADER_BYTES, at)
    if len(header) < HEADER_BYTES:
        return False
    base, size, magic = header_at(header, 0)
    return magic == MAGIC and HEADER_BYTES <= size <= segment.size - at and base >= 0


def _with_next(
    segments: Sequence[ListedSegment],
) -> Iterable[tuple[ListedSegment, ListedSegment | None]]:
    followers: list[ListedSegment | None] = [*segments[1:], None]
    return zip(segments, followers, strict=False)


def broken_chains(results: Mapping[str, Sequence[RangeResult]]) -> list[str]:
    """Return the files with a range that does not begin where the previous range ended."""
    broken = []
    for path, ranges in results.items():
        ordered = sorted(ranges, key=lambda each: each.start)
        pairs = pairwise(ordered)
        if any(before.stopped_at != after.start and not before.is_gone for before, after in pairs):
            broken.append(path)
    return broken
