"""Reads whole batches from one segment: the operation behind a fetch.

Where the start and the end are known positions, it is one read; otherwise it looks for the start
from the nearest index entry on and cuts the end at the last whole batch, looking at headers only
from the nearest known batch start on. First tried from the page cache on the loop, and where that
would block, on the directory's thread. Nothing is given to anybody before its checksums were
compared (`verifying`, V68).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from errno import ENOENT
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.limits import KIB
from tidelog.core.ports import Buffer, Files, Handle, Work
from tidelog.log.open_files import OpenFile
from tidelog.log.segment import Segment
from tidelog.log.verifying import recheck, verify, verify_next
from tidelog.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, STEP, CorruptBatch

if TYPE_CHECKING:
    from tidelog.log.appends import Plan
    from tidelog.log.partition_log import PartitionLog

#: An append of this size or less is kept as `Recent` for those who wait for it.
RECENT_BYTES = 16 * KIB
#: Ends of reads remembered per log: one per reader that follows along.
_MAX_READ_ENDS = 64
_SEARCH_BYTES = 8 * KIB
_MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
_OFFSET = struct.Struct(">q")


class NotCached(Exception):
    """A read from the page cache would have to wait for the disk."""


@dataclass(slots=True)
class LogSlice:
    """Whole batches as they are in the file.

    `first_offset` is the base offset of the first batch (it may be below the offset asked for),
    `next_offset` where to read on; both are -1 when the slice is empty.
    """

    data: Buffer
    first_offset: int = -1
    next_offset: int = -1
    #: Where the slice ends in its segment's file, so that the next read finds its start.
    end_position: int = -1

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.data)


class Recent(NamedTuple):
    """The append written last in a directory, while small: followers wait for exactly this, and
    are answered without a read of the file. A log that was cut can only end here again by another
    append, which takes its place."""

    log: PartitionLog
    slice: LogSlice

    @classmethod
    def of(cls, log: PartitionLog, plan: Plan) -> Recent | None:
        """What `log` has just written; None where a copy would cost more than a read."""
        info = plan.info
        if info.size_bytes > RECENT_BYTES:
            return None
        end_position = log.segments[-1].size_bytes
        written = LogSlice(bytes(plan.buffer), info.base_offset, info.last_offset + 1, end_position)
        return cls(log, written)

    def serves(self, log: PartitionLog, offset: int, max_bytes: int, end: int) -> bool:
        """Whether a read from `offset` to `end` would find exactly this."""
        part = self.slice
        return (
            self.log is log
            and offset == part.first_offset
            and end == part.next_offset
            and len(part.data) <= max_bytes
            and not log.is_closed
        )


@dataclass(slots=True)
class ReadOperation:
    """Reads batches from the one that contains `offset` on, all below `end_offset`."""

    file: OpenFile
    offset: int
    #: A batch start at or before the batch that contains `offset`.
    position: int
    #: Whether `position` is that batch itself.
    exact: bool
    #: End of what may be read; a batch end.
    limit_position: int
    #: Whether everything before `limit_position` is below `end_offset`.
    limit_is_end: bool
    end_offset: int
    max_bytes: int
    min_one_batch: bool
    #: A known batch start to look for the end from; its header lies within `max_bytes`.
    walk_from: int
    #: Offsets from `position` on are not below this.
    least: int
    cached: bool

    def __call__(self, files: Files) -> LogSlice | None:
        """The slice; None when no batch of this segment reaches `offset`.

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
        """Position of the first batch that reaches `offset`, -1 when there is none."""
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
        """What of `data` is whole batches below the end and not too much."""
        first, length, delta = STEP.unpack_from(data)
        if first >= self.end_offset:
            return LogSlice(b"")
        size = LOG_OVERHEAD_BYTES + length
        if size > self.max_bytes:
            if not self.min_one_batch:
                return LogSlice(b"")
            if size > self.limit_position - position or length < _MIN_LENGTH:
                raise CorruptBatch(position, f"length is {length}, beyond the end of the file")
            if size > len(data):
                data = read(size, position)
            if len(data) < size:
                raise CorruptBatch(position, "the file is shorter than it was written")
            return LogSlice(memoryview(data)[:size], first, first + delta + 1, position + size)
        end = max(self.walk_from - position, 0)
        available = len(data)
        end_offset = self.end_offset
        next_offset = -1
        unpack = STEP.unpack_from
        while available - end >= HEADER_BYTES:
            base, length, delta = unpack(data, end)
            if length < _MIN_LENGTH:
                raise CorruptBatch(position + end, f"length is {length}")
            size = LOG_OVERHEAD_BYTES + length
            if base >= end_offset or size > available - end:
                break
            end += size
            next_offset = base + delta + 1
        if next_offset < 0:
            next_offset = _OFFSET.unpack_from(data, end)[0]
        if end < available:
            data = memoryview(data)[:end]
        return LogSlice(data, first, next_offset, position + end)


class _Wrong(KafkaError):
    """A read found what cannot be right: the segment's index, or its batches, are damaged."""

    def __init__(self, segment: Segment, error: CorruptBatch) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path}: {error}")
        self.segment = segment
        self.error = error


def read(
    log: PartitionLog, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool
) -> Completion[LogSlice]:
    """See PartitionLog.read."""
    first = _read(log, offset, max_bytes, end_offset, min_one_batch)
    if first.done and first.error is None:
        return first
    completion: Completion[LogSlice] = Completion()

    def tried(done: Completion[LogSlice]) -> None:
        if not isinstance(done.error, _Wrong):
            _pass_on(done, completion)
            return

        def checked(rechecked: Completion[None]) -> None:
            if rechecked.error is not None:
                completion.fail(rechecked.error)
            else:
                again = _read_again(log, offset, max_bytes, end_offset, min_one_batch)
                _pass_on(again, completion)

        recheck(log, done.error.segment, done.error.error).then(checked)

    first.then(tried)
    return completion


def _read(
    log: PartitionLog, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool
) -> Completion[LogSlice]:
    log_end = log.log_end_offset
    if not log.log_start_offset <= offset <= log_end:
        raise _out_of_range(log, offset)
    end = min(end_offset, log_end)
    if log.pending_cut is not None:
        end = min(end, log.pending_cut)  # the bytes behind it may be gone by now
    if offset >= end:
        return Completion.of(LogSlice(b""))
    recent = log.directory.recent
    if recent is not None and recent.serves(log, offset, max_bytes, end):
        return Completion.of(recent.slice)
    number = bisect_right(log.base_offsets, offset) - 1
    segment = log.segments[max(number, 0)]
    if segment.index is not None:
        return _read_segment(log, segment, offset, max_bytes, end, min_one_batch)
    completion: Completion[LogSlice] = Completion()

    def indexed(done: Completion[None]) -> None:
        if done.error is not None:
            _fail(log, segment, completion, done.error)
        elif segment.index is None or segment.file.doomed:
            _pass_on(_read_again(log, offset, max_bytes, end, min_one_batch), completion)
        else:
            _pass_on(_read_segment(log, segment, offset, max_bytes, end, min_one_batch), completion)

    log.directory.with_index(segment).then(indexed)
    return completion


def _read_segment(
    log: PartitionLog,
    segment: Segment,
    offset: int,
    max_bytes: int,
    end: int,
    min_one_batch: bool,
) -> Completion[LogSlice]:
    operation = _operation(log, segment, offset, max_bytes, end, min_one_batch)
    file = segment.file
    directory = log.directory
    directory.open_files.pin(file)
    lane = directory.lane
    # Only opening the file could wait for the disk; what is read comes from the page cache or not.
    if file.is_open or lane.is_fast:
        done = lane.submit(operation, Work.NOWAIT, "read")
        if done.error is None:
            directory.open_files.unpin(file)
            slice_ = done.result()
            if slice_ is not None:
                _remember(log, segment, slice_)
                return done  # type: ignore[return-value]
            return _read_next(log, segment.base_offset, max_bytes, end, min_one_batch)
        if not isinstance(done.error, NotCached):
            completion: Completion[LogSlice] = Completion()
            directory.open_files.unpin(file)
            _fail(log, segment, completion, done.error)
            return completion
    operation.cached = False
    return _read_from_disk(log, segment, operation, end)


def _read_from_disk(
    log: PartitionLog, segment: Segment, operation: ReadOperation, end_offset: int
) -> Completion[LogSlice]:
    """The file is pinned by the caller. `end_offset` may lie in a later segment."""
    completion: Completion[LogSlice] = Completion()
    truncations = log.truncations

    def read_done(done: Completion[LogSlice | None]) -> None:
        log.directory.open_files.unpin(segment.file)
        if log.truncations != truncations:
            completion.fail(
                KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"{log.topic_partition} was truncated while it was read",
                )
            )
        elif done.error is not None:
            _fail(log, segment, completion, done.error)
        else:
            slice_ = done.result()
            if slice_ is not None:
                _remember(log, segment, slice_)
                completion.resolve(slice_)
            else:
                # Where another has taken its place, what was the next one's may be in that.
                go_on = _read_again if segment.file.doomed else _read_next
                offset = operation.offset if segment.file.doomed else segment.base_offset
                following = go_on(
                    log, offset, operation.max_bytes, end_offset, operation.min_one_batch
                )
                _pass_on(following, completion)

    log.directory.lane.submit(operation, Work.SLOW, "read from disk").then(read_done)
    return completion


def _read_next(
    log: PartitionLog, base_offset: int, max_bytes: int, end: int, min_one_batch: bool
) -> Completion[LogSlice]:
    """No batch of the segment that begins at `base_offset` reaches the offset (compaction took
    them): go to the next one."""
    following = [base for base in log.base_offsets if base > base_offset]
    if not following or following[0] >= end:
        return Completion.of(LogSlice(b""))
    offset = max(following[0], log.log_start_offset)
    return _read_again(log, offset, max_bytes, end, min_one_batch)


def _read_again(
    log: PartitionLog, offset: int, max_bytes: int, end: int, min_one_batch: bool
) -> Completion[LogSlice]:
    """Begin anew: other files make up the log than when the read began."""
    if log.is_closed:
        return Completion.failed(
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{log.topic_partition} is gone")
        )
    try:
        return _read(log, offset, max_bytes, end, min_one_batch)
    except KafkaError as error:
        return Completion.failed(error)


def _operation(
    log: PartitionLog,
    segment: Segment,
    offset: int,
    max_bytes: int,
    end: int,
    min_one_batch: bool,
) -> ReadOperation:
    index = segment.index
    if index is None:
        raise AssertionError(f"the index of {segment.file.path} is not in memory")
    active = segment is log.segments[-1]
    exact = True
    remembered = log.read_ends.get(offset)
    if offset == segment.base_offset:
        position = 0
    elif remembered is not None and remembered[0] == segment.base_offset:
        position = remembered[1]
    else:
        position = log.batch_starts.position_of(offset) if active else -1
        if position < 0:
            position = index.floor(offset)
            exact = False
    segment_end = log.log_end_offset
    if not active:
        segment_end = log.base_offsets[bisect_right(log.base_offsets, segment.base_offset)]
    limit = segment.size_bytes
    limit_is_end = True
    if end < segment_end:
        known = log.batch_starts.position_of(end) if active else -1
        limit_is_end = known >= 0
        if limit_is_end:
            limit = known
    else:
        end = segment_end
    walk_from = position
    if exact and limit - position > max_bytes:
        # Early enough for the header of the batch there, whose offset is wanted, to be read.
        walk_from = index.batch_start_before(position + max_bytes - HEADER_BYTES, position)
        if not limit_is_end:
            walk_from = max(position, min(walk_from, index.floor(end - 1)))
    return ReadOperation(
        segment.file,
        offset,
        position,
        exact,
        limit,
        limit_is_end,
        end,
        max_bytes,
        min_one_batch,
        walk_from,
        index.least_at_floor(offset),
        cached=True,
    )


def _remember(log: PartitionLog, segment: Segment, slice_: LogSlice) -> None:
    """The next read of this reader begins where this one ended."""
    if slice_.next_offset >= 0 and not segment.file.doomed:
        ends = log.read_ends
        ends.pop(slice_.next_offset, None)
        ends[slice_.next_offset] = (segment.base_offset, slice_.end_position)
        if len(ends) > _MAX_READ_ENDS:
            del ends[next(iter(ends))]


def _out_of_range(log: PartitionLog, offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} of {log.topic_partition}, "
        f"which has {log.log_start_offset} to {log.log_end_offset}",
    )


def _pass_on(done: Completion[LogSlice], completion: Completion[LogSlice]) -> None:
    def tell(finished: Completion[LogSlice]) -> None:
        if finished.error is not None:
            completion.fail(finished.error)
        else:
            completion.resolve(finished.result())

    done.then(tell)


def _fail(
    log: PartitionLog, segment: Segment, completion: Completion[LogSlice], error: BaseException
) -> None:
    """Say why a read failed; what a truncation or deletion took meanwhile is neither damage nor a
    failure of the disk, though the loop may not have heard yet that it is done."""
    if log.pending_cut is not None and is_loss(error):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        completion.fail(KafkaError(code, f"{log.topic_partition} is being truncated"))
        return
    gone = log.is_closed or segment not in log.segments
    if gone and is_loss(error):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if log.is_closed else ErrorCode.OFFSET_OUT_OF_RANGE
        completion.fail(KafkaError(code, f"{segment.file.path} is gone"))
        return
    if isinstance(error, CorruptBatch):
        completion.fail(_Wrong(segment, error))
        return
    log.directory.failed(error)
    completion.fail(error)


def is_loss(error: BaseException) -> bool:
    """Whether a file, or bytes of it, were not there: right where they had just been removed."""
    if isinstance(error, StorageError):
        return error.errno == ENOENT
    return isinstance(error, CorruptBatch)
