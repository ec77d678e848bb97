"""Operations that read one segment's files for fetches, timestamp lookups, and full checks.

If the start and end positions of a fetch are known, the operation reads the file once. If the
positions are unknown, the operation searches for the start from the nearest index entry on, and
returns batches up to the last complete one. The search reads only the headers of batches.
`log_reads` submits these operations.

Every batch's checksum is verified before a client gets the batch (V68). If a read finds an error,
`Recheck` reads the whole segment to find out whether an index entry is wrong or batches are
damaged. A recent append that followers get from memory (`Recent`) was already checked when it
arrived. Sources: LogSegment.read, LogSegment.findOffsetByTimestamp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from errno import ENOENT
from typing import NamedTuple

from tidelog.core.checksums import crc32c
from tidelog.core.dataclass import dataclass
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

#: Maximum size of an append that is copied to `Recent` for followers at the log end.
RECENT_BYTES = 16 * KIB
#: After a read has reached a log end, this many next appends are each copied to `Recent`; each copy
#: replaces the previous copy.
RECENT_APPENDS = 64
_SEARCH_BYTES = 8 * KIB
_MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
_OFFSET = struct.Struct(">q")
#: Header fields: base offset, length, leader epoch, magic, CRC, attributes, last offset delta.
_HEAD = struct.Struct(">qiibIhi")
#: (timestamp in ms, offset, leader epoch) of a record.
Found = tuple[int, int, int]


class NotCached(Exception):
    """The error for a read from the page cache alone that would have to wait for the disk."""


@dataclass(slots=True)
class LogSlice:
    """A slice of a log: complete batches, as the file has them.

    `first_offset` is the base offset of the first batch, which may be below the requested offset.
    `next_offset` is the offset of the next read. In an empty slice, `first_offset` and
    `next_offset` are -1.
    """

    data: Buffer
    first_offset: int = -1
    next_offset: int = -1
    #: Position in the segment's file where the slice ends and the next read starts.
    end_position: int = -1
    #: Whether the slice ends before the requested end because of `max_bytes`.
    is_cut: bool = False
    #: Base offset of the slice's segment; a slice holds batches of one segment only.
    base_offset: int = -1

    @property
    def size(self) -> int:
        """The size of the slice in bytes."""
        return len(self.data)


class Recent(NamedTuple):
    """A copy of the last append in a log directory, kept if the append is small.

    Followers that wait at the log end get the copy, so their fetches read no file. A truncation
    need not discard the copy: the log reaches the same end offset again only by a new append, which
    replaces the copy.
    """

    #: The log of the append, used only to compare logs for identity.
    log: object
    slice: LogSlice

    def serves(self, log: object, offset: int, max_bytes: int, end: int) -> bool:
        """Return whether a read from `offset` to `end` of `log` would find exactly this append."""
        part = self.slice
        return (
            self.log is log
            and offset == part.first_offset
            and end == part.next_offset
            and len(part.data) <= max_bytes
        )


@dataclass(slots=True)
class ReadOperation:
    """An operation that reads the batches below `end_offset`, from the batch with `offset` on."""

    file: OpenFile
    offset: int
    #: Position in the segment's file at which the search begins: the start of the batch that
    #: contains `offset`, or of an earlier batch.
    position: int
    #: Whether `position` is the start of the batch that contains `offset`.
    exact: bool
    #: The read must not go beyond this position, which is the end of a batch.
    limit_position: int
    #: Whether all batches before `limit_position` are below `end_offset`.
    limit_is_end: bool
    end_offset: int
    #: All batches before `limit_position` begin below this offset.
    bound_offset: int
    max_bytes: int
    min_one_batch: bool
    #: Position of a known batch whose header lies within `max_bytes`. The search for the last batch
    #: to return begins at this batch.
    walk_from: int
    #: Lower bound of the offsets of all batches at or after `position`.
    least: int
    cached: bool

    def __call__(self, files: Files) -> LogSlice | None:
        """Return the slice, or None if all batches of this segment end below `offset`.

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
        """Return the position of the first batch that ends at or beyond `offset`, or -1."""
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
        """Return the complete batches of `data` below `end_offset`, within `max_bytes`."""
        first, length, delta = STEP.unpack_from(data)
        if first >= self.bound_offset:
            # The base offset is wrong; no checksum covers it. Without this error, the response
            # would be empty, and clients would repeat the fetch for ever.
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
    """Raise CorruptBatch unless `data`, which was read at `position`, has valid batches for the
    read.

    The batches must be complete with valid checksums, and their offsets must rise. The first batch
    must end at or beyond `offset`, and no batch may exceed `end_offset`. Returns whether offsets
    are missing after `offset`, before or between the batches. No checksum covers base offsets. If
    the last batch follows a gap, the caller must check that the next batch comes after it
    (`verify_next`).
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
    """Raise CorruptBatch unless the batch at `position` begins at or after `next_offset`."""
    base = int.from_bytes(bytes(header[:8]), "big", signed=True)
    if base < next_offset:
        raise CorruptBatch(position, f"offset {base}, and those before it end at {next_offset - 1}")


@dataclass(slots=True)
class Recheck:
    """An operation that checks all batches of a segment up to `size_bytes` and builds indexes."""

    segment: Segment
    size_bytes: int
    interval_bytes: int
    #: Offset where the next segment begins or the log ends.
    end_offset: int
    #: The log's newest leader epoch, which no batch may exceed. Leader epochs must not fall from
    #: batch to batch.
    latest_epoch: int

    def __call__(self, files: Files) -> tuple[Segment, int, CorruptBatch | None]:
        """Return the segment with indexes of its valid batches, the offset after the last valid
        batch, and the damage found; the damage is None if all batches are valid.

        Raises OSError.
        """
        right = Segment(self.segment.directory, self.segment.base_offset, self.segment.created_ms)
        handle = self.segment.file.handle(files)
        scan = Scan(
            lambda size, at: files.pread(handle, size, at),
            right.base_offset, 0, self.size_bytes, right.base_offset,
        )  # fmt: skip
        end, epoch = right.base_offset, -1
        #: If a gap precedes the last checked batch: the offset where the gap begins; otherwise -1.
        #: Only batches below this offset are certainly valid.
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
    """A search for a segment's first record at or after `start_offset` and `timestamp_ms`."""

    file: OpenFile
    base_offset: int
    position: int
    size_bytes: int
    timestamp_ms: int
    start_offset: int
    end_offset: int

    def __call__(self, files: Files) -> Found | None:
        """Search the segment. Raises CorruptBatch, OSError."""
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
    """Return whether the error says that a file or bytes are missing, as after a segment's
    removal.
    """
    if isinstance(error, StorageError):
        return error.errno == ENOENT
    return isinstance(error, CorruptBatch)
