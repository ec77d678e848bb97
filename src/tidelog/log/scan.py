"""Iteration over the batches of a log file, with few reads.

A scan reads either only batch headers, skipping the records of large batches, or complete batches,
to check their CRC. Scans run inside file operations of the log directory. A scan ends at the first
bytes that are no valid batch of the segment, and notes the position and the reason. Invalid content
never raises an error; only a failure of the disk raises OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.core.limits import KIB, MIB
from tidelog.core.ports import Buffer
from tidelog.log.index import MAX_RELATIVE_OFFSET
from tidelog.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchView,
    CorruptBatch,
    check,
    size_of_batch,
)

#: A function of (size, position) that reads `size` bytes, or fewer at the end of the file.
Read = Callable[[int, int], Buffer]

_HEADERS_CHUNK_BYTES = 16 * KIB
_WHOLE_CHUNK_BYTES = MIB


class Scan:
    """An iterator over (position, batch) of a segment's file from `position` to `end_position`.

    A batch is invalid if it ends below the segment's `base_offset`, or more than
    `MAX_RELATIVE_OFFSET` above it. Batches that end beyond `check_from_offset` are read completely
    and checked. For batches that end below `check_from_offset`, the scan reads only the header into
    `batch.buffer`. After the iteration, `position` is the end of the last valid batch, and
    `problem` is the reason why the scan ended early; None if it did not.
    """

    __slots__ = (
        "_base_offset",
        "_check_from_offset",
        "_chunk",
        "_chunk_position",
        "_end",
        "_read",
        "position",
        "problem",
    )

    def __init__(
        self,
        read: Read,
        base_offset: int,
        position: int,
        end_position: int,
        check_from_offset: int | None = None,
    ) -> None:
        self._read = read
        self._base_offset = base_offset
        self._end = end_position
        self._check_from_offset = check_from_offset
        self._chunk: Buffer = b""
        self._chunk_position = position
        self.position = position
        self.problem: str | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchView]]:
        while self.position < self._end:
            try:
                batch = self._next()
            except CorruptBatch as error:
                self.problem = error.reason
                return
            position = self.position
            self.position += batch.size_bytes
            yield position, batch

    def _next(self) -> BatchView:
        position = self.position
        left = self._end - position
        if left < HEADER_BYTES:
            raise CorruptBatch(position, f"{left} bytes are left, a header has {HEADER_BYTES}")
        at = self._have(position, HEADER_BYTES, _HEADERS_CHUNK_BYTES)
        size = size_of_batch(self._chunk, at)
        batch = BatchView(self._chunk, at)
        if batch.magic != MAGIC:
            raise CorruptBatch(position, f"magic is {batch.magic}, only 2 is supported")
        if size > left:
            raise CorruptBatch(position, f"{size} bytes long, but only {left} are left")
        if batch.last_offset_delta < 0:
            raise CorruptBatch(position, f"last offset delta is {batch.last_offset_delta}")
        last_offset = batch.last_offset
        if batch.base_offset < 0 or not 0 <= last_offset - self._base_offset <= MAX_RELATIVE_OFFSET:
            raise CorruptBatch(
                position,
                f"offsets {batch.base_offset}..{last_offset} are none of the segment that begins "
                f"at {self._base_offset}",
            )
        wanted = self._check_from_offset
        if wanted is not None and last_offset >= wanted:
            # Read the bytes first and take the view of the chunk afterwards, because a read may
            # replace the chunk.
            at = self._have(position, size, _WHOLE_CHUNK_BYTES)
            batch = BatchView(self._chunk, at)
            check(batch)
        return batch

    def _have(self, position: int, size: int, chunk_bytes: int) -> int:
        """Return at which index the chunk in memory has the bytes at `position`; read a new chunk
        if needed.
        """
        at = position - self._chunk_position
        if at < 0 or at + size > len(self._chunk):
            wanted = min(max(size, chunk_bytes), self._end - position)
            self._chunk = self._read(wanted, position)
            self._chunk_position = position
            at = 0
            if len(self._chunk) < size:
                raise CorruptBatch(position, "the file is shorter than it was")
        return at


def whole_batch(read: Read, position: int, end_position: int) -> BatchView:
    """Return the complete batch at `position`. Raises CorruptBatch."""
    header = read(LOG_OVERHEAD_BYTES, position)
    if len(header) < LOG_OVERHEAD_BYTES:
        raise CorruptBatch(position, "the file ends in the batch's header")
    size = size_of_batch(header, 0)
    if position + size > end_position:
        raise CorruptBatch(position, f"{size} bytes long, beyond the end at {end_position}")
    batch = BatchView(read(size, position), 0)
    check(batch)
    return batch
