"""Operations that read one segment's files: batches for a fetch, a time, a check of all of it.

Where the start and the end of a read are known positions, it is one read. Otherwise it looks for
the start from the nearest index entry on and ends at the last whole batch. It reads headers only,
from the nearest known batch start on. Runs inside operations; `log_reads` submits them.

Bytes are compared with their checksums before a client gets them (V68). A read that finds something
wrong has met one of two things: an index that points beside the batches, or damaged batches.
`Recheck` goes through the whole segment and says which. A recent append that is answered from
memory (`Recent`) was checked on arrival. Sources: LogSegment.read,
LogSegment.findOffsetByTimestamp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from errno import ENOENT
from typing import NamedTuple

from tidelog.core.checksums import crc32c
from tidelog.core.errors import StorageError
from tidelog.core.limits import KIB, MAX_DECOMPRESSED_BYTES
from tidelog.core.ports import Buffer, Files, Handle
from tidelog.log.open_files import OpenFile
from tidelog.log.scan import Scan, whole_batch
from tidelog.log.segment import Segment
from tidelog.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    STEP,
    CorruptBatch,
)
from tidelog.records.reader import read_columns

#: An append of this size or less is kept as `Recent` for followers that wait for it.
RECENT_BYTES = 16 * KIB
#: Appends of a directory that are kept so, one by one, after a read that reached the end of a log.
RECENT_APPENDS = 64
_SEARCH_BYTES = 8 * KIB
_MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
_OFFSET = struct.Struct(">q")
#: base offset, length, leader epoch, magic, crc, attributes, last offset delta.
_HEAD = struct.Struct(">qiibIhi")
#: (timestamp in ms, offset, leader epoch) of a record.
Found = tuple[int, int, int]


class NotCached(Exception):
    """A read from the page cache would have to wait for the disk."""


@dataclass(slots=True)
class LogSlice:
    """Whole batches as they are in the file.

    `first_offset` is the base offset of the first batch; it may be below the requested offset.
    `next_offset` is where to read on. Both are -1 when the slice is empty.
    """

    data: Buffer
    first_offset: int = -1
    next_offset: int = -1
    #: Where the slice ends in its segment's file, so that the next read finds its start.
    end_position: int = -1
    #: Whether a batch before the end had no room within `max_bytes`.
    is_cut: bool = False
    #: Base offset of its segment: a slice holds batches of one segment only.
    base_offset: int = -1

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.data)


class Recent(NamedTuple):
    """The append written last in a directory, while small.

    Followers wait for exactly this append, and get it without a read of the file. A truncated log
    can only end here again after another append, which replaces this one.
    """

    #: The log of the append; only compared.
    log: object
    slice: LogSlice

    def serves(self, log: object, offset: int, max_bytes: int, end: int) -> bool:
        """Return whether a read from `offset` to `end` of an open log would find exactly this."""
        part = self.slice
        return (
            self.log is log
            and offset == part.first_offset
            and end == part.next_offset
            and len(part.data) <= max_bytes
        )


@dataclass(slots=True)
class ReadOperation:
    """Operation that reads batches from the one that contains `offset` on, below `end_offset`."""

    file: OpenFile
    offset: int
    #: A batch start at or before the batch that contains `offset`.
    position: int
    #: Whether `position` is that batch itself.
    exact: bool
    #: End of the readable bytes; a batch end.
    limit_position: int
    #: Whether everything before `limit_position` is below `end_offset`.
    limit_is_end: bool
    end_offset: int
    #: No batch before `limit_position` begins here or behind.
    bound_offset: int
    max_bytes: int
    min_one_batch: bool
    #: A known batch start to look for the end from; its header lies within `max_bytes`.
    walk_from: int
    #: Offsets from `position` on are not below this.
    least: int
    cached: bool

    def __call__(self, files: Files) -> LogSlice | None:
        """Return the slice; None when no batch of this segment reaches `offset`.

        Raises NotCached, CorruptBatch, OSError.
        """
        handle = self.file.handle(files)
        read = self._reader(files, handle)
        slice_ = self._read(read)
        if slice_ is not None and slice_.data:
            end = slice_.end_position
            has_gap = verify(slice_.data, end - len(slice_.data), self.offset, self.end_offset)
            if has_gap and end + HEADER_BYTES <= self.limit_position:
                verify_next(read(HEADER_BYTES, end), end, slice_.next_offset)
        return slice_

    def _reader(self, files: Files, handle: Handle) -> Callable[[int, int], Buffer]:
        if self.cached:

            def read(size: int, position: int) -> Buffer:
                data = files.pread_cached(handle, size, position)
                if data is None:
                    raise NotCached
                return data
        else:

            def read(size: int, position: int) -> Buffer:
                return files.pread(handle, size, position)

        return read

    def _read(self, read: Callable[[int, int], Buffer]) -> LogSlice | None:
        position = self.position
        if not self.exact:
            found = self._find(read)
            if found < 0:
                return None
            position = found
        available = self.limit_position - position
        if available < HEADER_BYTES:
            return None
        if available <= self.max_bytes and self.limit_is_end:
            data = read(available, position)
            if len(data) < available:
                raise CorruptBatch(position, "the file is shorter than it was written")
            first = _OFFSET.unpack_from(data)[0]
            return LogSlice(data, first, self.end_offset, self.limit_position)
        wanted = min(max(self.max_bytes, HEADER_BYTES), available)
        data = read(wanted, position)
        if len(data) < wanted:
            raise CorruptBatch(position, "the file is shorter than it was written")
        return self._cut(read, data, position)

    def _find(self, read: Callable[[int, int], Buffer]) -> int:
        """Return the position of the first batch that reaches `offset`, -1 when there is none."""
        position, limit, offset = self.position, self.limit_position, self.offset
        data: Buffer = b""
        start = position
        least = self.least
        while limit - position >= HEADER_BYTES:
            at = position - start
            if at + HEADER_BYTES > len(data):
                start, at = position, 0
                data = read(min(_SEARCH_BYTES, limit - position), position)
                if len(data) < HEADER_BYTES:
                    raise CorruptBatch(position, "the file is shorter than it was written")
            base, length, delta = STEP.unpack_from(data, at)
            if length < _MIN_LENGTH or base + delta < least:
                raise CorruptBatch(position, f"length is {length}, offset {base} behind {least}")
            if base + delta >= offset:
                return position
            least = base + delta + 1
            position += LOG_OVERHEAD_BYTES + length
        return -1

    def _cut(
        self, read: Callable[[int, int], Buffer], data: Buffer, position: int
    ) -> LogSlice | None:
        """Return the whole batches of `data` below the end, of at most the wanted size."""
        first, length, delta = STEP.unpack_from(data)
        if first >= self.bound_offset:
            # No checksum covers a base offset. An empty answer would be repeated for ever.
            raise CorruptBatch(position, f"offset {first}, where none reach {self.bound_offset}")
        if first >= self.end_offset:
            return LogSlice(b"")
        size = LOG_OVERHEAD_BYTES + length
        if size > self.max_bytes:
            if not self.min_one_batch:
                return LogSlice(b"", is_cut=True)
            if size > self.limit_position - position or length < _MIN_LENGTH:
                raise CorruptBatch(position, f"length is {length}, beyond the end of the file")
            if size > len(data):
                data = read(size, position)
            if len(data) < size:
                raise CorruptBatch(position, "the file is shorter than it was written")
            end, next_offset = position + size, first + delta + 1
            is_cut = end < self.limit_position and next_offset < self.end_offset
            return LogSlice(memoryview(data)[:size], first, next_offset, end, is_cut)
        end = max(self.walk_from - position, 0)
        available = len(data)
        end_offset = self.end_offset
        next_offset = -1
        is_cut = position + available < self.limit_position
        unpack = STEP.unpack_from
        while available - end >= HEADER_BYTES:
            base, length, delta = unpack(data, end)
            if length < _MIN_LENGTH:
                raise CorruptBatch(position + end, f"length is {length}")
            size = LOG_OVERHEAD_BYTES + length
            if base >= end_offset:
                is_cut = False
                break
            if size > available - end:
                break
            end += size
            next_offset = base + delta + 1
        if next_offset < 0:
            next_offset = _OFFSET.unpack_from(data, end)[0]
        if end < available:
            data = memoryview(data)[:end]
        is_cut &= next_offset < end_offset
        return LogSlice(data, first, next_offset, position + end, is_cut)


def verify(data: Buffer, position: int, offset: int, end_offset: int) -> bool:
    """Raise CorruptBatch unless `data`, from `position` of a file, is the batches wanted.

    They are whole batches with right checksums. The first reaches `offset`; their offsets rise and
    end by `end_offset`. Returns whether offsets are missing from `offset` on. Then a base offset,
    which no checksum covers, is right only if the next batch lies behind (`verify_next`).
    """
    view = memoryview(data)
    size_bytes = len(view)
    at = 0
    least = -1
    has_gap = False
    while at < size_bytes:
        if size_bytes - at < HEADER_BYTES:
            raise CorruptBatch(position + at, f"{size_bytes - at} bytes are no batch")
        base, length, _, magic, crc, _, delta = _HEAD.unpack_from(view, at)
        end = at + LOG_OVERHEAD_BYTES + length
        if length < _MIN_LENGTH or end > size_bytes or magic != MAGIC:
            raise CorruptBatch(position + at, f"no batch of magic {MAGIC} begins here")
        if crc32c(view[at + ATTRIBUTES_POSITION : end]) != crc:
            raise CorruptBatch(position + at, f"the CRC is not {crc:#010x}")
        last = base + delta
        if delta < 0 or base < least or last < offset or last >= end_offset:
            raise CorruptBatch(
                position + at,
                f"offsets {base}..{last} cannot stand here, where {max(least, offset)} up to "
                f"{end_offset - 1} are read",
            )
        has_gap |= base > (offset if least < 0 else least)
        least = last + 1
        at = end
    return has_gap


def verify_next(header: Buffer, position: int, next_offset: int) -> None:
    """Raise CorruptBatch unless the batch at `position` begins at or behind `next_offset`."""
    base = int.from_bytes(bytes(header[:8]), "big", signed=True)
    if base < next_offset:
        raise CorruptBatch(position, f"offset {base}, and those before it end at {next_offset - 1}")


@dataclass(slots=True)
class Recheck:
    """Operation that reads every batch of a segment, up to `size_bytes`, and makes its indexes."""

    segment: Segment
    size_bytes: int
    interval_bytes: int
    #: Where the next segment begins, or the log ends.
    end_offset: int
    #: Leader epochs never go back (recovery counts on it), nor beyond the log's newest.
    latest_epoch: int

    def __call__(self, files: Files) -> tuple[Segment, int, CorruptBatch | None]:
        """Return a segment with indexes of the good batches, the offset behind them, the damage.

        The damage is None where the segment is right. Raises OSError.
        """
        right = Segment(self.segment.directory, self.segment.base_offset, self.segment.created_ms)
        handle = self.segment.file.handle(files)
        scan = Scan(
            lambda size, at: files.pread(handle, size, at),
            right.base_offset, 0, self.size_bytes, right.base_offset,
        )  # fmt: skip
        end, epoch = right.base_offset, -1
        #: Offset up to which all is surely right, where offsets are missing before the last batch.
        before_gap = -1
        for position, batch in scan:
            if (
                batch.base_offset < end
                or batch.last_offset >= self.end_offset
                or not epoch <= batch.partition_leader_epoch <= self.latest_epoch
            ):
                reason = (
                    f"offsets {batch.base_offset}..{batch.last_offset} of leader epoch "
                    f"{batch.partition_leader_epoch} cannot follow at {end}, epoch {epoch}"
                )
                if batch.base_offset < end and before_gap >= 0:
                    end = before_gap
                return right, end, CorruptBatch(position, reason)
            before_gap = end if batch.base_offset > end else -1
            epoch, end = batch.partition_leader_epoch, batch.next_offset
            right.note_batch(
                batch.last_offset, batch.size_bytes, batch.max_timestamp, self.interval_bytes
            )
        wrong = None if scan.problem is None else CorruptBatch(scan.position, scan.problem)
        return right, end, wrong


@dataclass(slots=True)
class TimestampSearch:
    """Search for the first record of one segment, from `start_offset` on, of at least this time."""

    file: OpenFile
    base_offset: int
    position: int
    size_bytes: int
    timestamp_ms: int
    start_offset: int
    end_offset: int

    def __call__(self, files: Files) -> Found | None:
        """Search. Raises CorruptBatch, OSError."""
        handle = self.file.handle(files)

        def read(size: int, position: int) -> bytes:
            return files.pread(handle, size, position)

        scan = Scan(read, self.base_offset, self.position, self.size_bytes)
        for position, header in scan:
            if header.base_offset >= self.end_offset:
                return None
            if header.max_timestamp < self.timestamp_ms or header.last_offset < self.start_offset:
                continue
            batch = whole_batch(read, position, self.size_bytes)
            columns = read_columns(
                batch, with_headers=False, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES
            )
            for offset, timestamp_ms in zip(columns.offsets, columns.timestamps_ms, strict=True):
                if timestamp_ms >= self.timestamp_ms and offset >= self.start_offset:
                    if offset >= self.end_offset:
                        return None
                    return timestamp_ms, offset, batch.partition_leader_epoch
        if scan.problem is not None:
            raise CorruptBatch(scan.position, scan.problem)
        return None


def is_loss(error: BaseException) -> bool:
    """Return whether a file, or bytes of it, were missing: right after their removal."""
    if isinstance(error, StorageError):
        return error.errno == ENOENT
    return isinstance(error, CorruptBatch)
