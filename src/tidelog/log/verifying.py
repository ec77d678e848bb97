"""What is read from a file is compared with its checksums before anybody is given it (V68).

A read that finds something wrong has met one of two things: an index that points beside the
batches, or damaged batches. `recheck` goes through the segment, whole, and tells which: an index is
made anew and the read repeated; damage is told with the offset from which on the log is not to be
believed. What was appended a moment ago and is answered from memory was checked when it came.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.ports import Buffer, Files, Work
from tidelog.log.index import OffsetIndex, TimeIndex
from tidelog.log.scan import Scan
from tidelog.log.segment import Segment
from tidelog.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    CorruptBatch,
)

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog

#: base offset, length, leader epoch, magic, crc, attributes, last offset delta.
_HEAD = struct.Struct(">qiibIhi")
_MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES


def verify(data: Buffer, position: int, offset: int, end_offset: int) -> bool:
    """Raise CorruptBatch unless `data`, from `position` of a file, is whole batches with right
    checksums, the first of which reaches `offset`, and whose offsets rise and end by `end_offset`.

    Returns whether offsets are missing from `offset` on: then a base offset, which no checksum
    covers, is right only if what follows lies behind (`verify_next`).
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
    """Reads a segment from its start to `size_bytes`, every batch whole; makes its indexes."""

    segment: Segment
    size_bytes: int
    interval_bytes: int
    #: Where the next segment begins, or the log ends.
    end_offset: int
    #: Leader epochs never go back (recovery counts on it), nor beyond the log's newest.
    latest_epoch: int

    def __call__(self, files: Files) -> tuple[Segment, int, CorruptBatch | None]:
        """(A segment with indexes of what is right, the offset behind that, what is wrong).

        Raises OSError.
        """
        right = Segment(self.segment.directory, self.segment.base_offset, self.segment.created_ms)
        handle = self.segment.file.handle(files)
        scan = Scan(
            lambda size, at: files.pread(handle, size, at),
            right.base_offset, 0, self.size_bytes, right.base_offset,
        )  # fmt: skip
        end, epoch = right.base_offset, -1
        #: Up to where everything is surely right, where offsets are missing before the last batch.
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


def recheck(log: PartitionLog, segment: Segment, found: CorruptBatch) -> Completion[None]:
    """A read of `segment` found something wrong. Done when its index was to blame and is right
    now; else fails: KafkaError CORRUPT_MESSAGE for damage, which the directory is told of,
    NOT_LEADER_OR_FOLLOWER where the log was cut meanwhile; StorageError.
    """
    completion: Completion[None] = Completion()
    directory = log.directory
    truncations = log.truncations
    following = [base for base in log.base_offsets if base > segment.base_offset]
    operation = Recheck(
        segment, segment.size_bytes, directory.default_config.index_interval_bytes,
        following[0] if following else log.log_end_offset, log.epochs.latest_epoch,
    )  # fmt: skip
    directory.open_files.pin(segment.file)

    def checked(done: Completion[tuple[Segment, int, CorruptBatch | None]]) -> None:
        directory.open_files.unpin(segment.file)
        if log.truncations != truncations or log.is_closed or segment not in log.segments:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            completion.fail(KafkaError(code, f"{log.topic_partition} changed while it was read"))
        elif done.error is not None:
            directory.failed(done.error)
            completion.fail(done.error)
        else:
            right, end, wrong = done.result()
            if wrong is None:
                _believe(log, segment, right, operation.size_bytes)
                directory.index_rebuilt(segment.file.path, found)
                completion.resolve(None)
            else:
                directory.damaged(log.topic_partition, segment.file.path, wrong, end)
                text = f"{segment.file.path}: {wrong}"
                completion.fail(KafkaError(ErrorCode.CORRUPT_MESSAGE, text))

    directory.lane.submit(operation, Work.SLOW, "check a segment").then(checked)
    return completion


def _believe(log: PartitionLog, segment: Segment, right: Segment, size_bytes: int) -> None:
    """Take the indexes of what was checked; what was appended meanwhile is in the old ones."""
    index, time_index = right.index or OffsetIndex(0), right.time_index or TimeIndex(0)
    if segment.index is not None:
        for offset, position in segment.index.entries():
            if position >= size_bytes:
                index.append(offset, position)
    segment.index, segment.time_index = index, time_index
    log.read_ends.clear()
