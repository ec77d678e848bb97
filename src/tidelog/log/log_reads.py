"""Reads of one log by offset and by timestamp: the part that runs on the event loop;
`segment_reads` reads the files.

A read by offset first tries the page cache, on the event loop. If that would block, the directory's
thread reads from the disk. A read by timestamp starts at the batch to which the time index points,
and scans batch headers up to the first batch with a large enough timestamp. It then searches the
records of this batch, because only records have exact timestamps.

If a read finds an error, the whole segment is checked (`recheck`). A damaged index is rebuilt and
the read is repeated. Damaged batches are reported, with the first offset that can no longer be
trusted (V68). Sources: UnifiedLog.read, UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, TypeVar

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.ports import Work
from tidelog.log.index import OffsetIndex, TimeIndex
from tidelog.log.log_state import LogState
from tidelog.log.segment import Segment
from tidelog.log.segment_reads import (
    RECENT_APPENDS,
    Found,
    LogSlice,
    NotCached,
    ReadOperation,
    Recheck,
    TimestampSearch,
    is_loss,
)
from tidelog.records.batch import HEADER_BYTES, CorruptBatch

#: Number of read positions that a log remembers, one for each consumer or follower that reads at
#: the log end.
_MAX_READ_ENDS = 64

T = TypeVar("T")


class _Wrong(KafkaError):
    """The error for a read that found damage of the segment's index or batches."""

    def __init__(self, segment: Segment, error: CorruptBatch) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path}: {error}")
        self.segment = segment
        self.error = error


def read(
    log: LogState,
    offset: int,
    max_bytes: int,
    end_offset: int,
    min_one_batch: bool,
    may_wait: bool = True,
) -> Completion[LogSlice]:
    """Read batches by offset; see PartitionLog.read."""
    first = _read(log, offset, max_bytes, end_offset, min_one_batch, may_wait)
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
    log: LogState,
    offset: int,
    max_bytes: int,
    end_offset: int,
    min_one_batch: bool,
    may_wait: bool = True,
) -> Completion[LogSlice]:
    log_end = log.log_end_offset
    if not log.log_start_offset <= offset <= log_end:
        raise _out_of_range(log, offset)
    end = min(end_offset, log_end)
    if log.truncating_to is not None:
        # A truncation under way may have removed the bytes beyond `truncating_to`.
        end = min(end, log.truncating_to)
    if offset >= end:
        return Completion.of(LogSlice(b""))
    directory = log.directory
    if end == log_end:
        directory.recent_wanted = RECENT_APPENDS
    recent = directory.recent
    if recent is not None and recent.serves(log, offset, max_bytes, end) and not log.is_closed:
        return Completion.of(recent.slice)
    number = bisect_right(log.base_offsets, offset) - 1
    segment = log.segments[max(number, 0)]
    if segment.index is not None:
        return _read_segment(log, segment, offset, max_bytes, end, min_one_batch, may_wait)
    if not may_wait:
        return Completion.failed(NotCached())
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
    log: LogState,
    segment: Segment,
    offset: int,
    max_bytes: int,
    end: int,
    min_one_batch: bool,
    may_wait: bool = True,
) -> Completion[LogSlice]:
    operation = _operation(log, segment, offset, max_bytes, end, min_one_batch)
    file = segment.file
    directory = log.directory
    directory.open_files.pin(file)
    lane = directory.lane
    # On the event loop, only opening the file could wait for the disk: the read itself uses the
    # page cache or fails.
    if file.is_open or lane.is_fast:
        done = lane.submit(operation, Work.NOWAIT, "read")
        if done.error is None:
            directory.open_files.unpin(file)
            slice_ = done.result()
            if slice_ is not None:
                _remember(log, segment, slice_)
                return done  # type: ignore[return-value]
            return _read_next(log, segment.base_offset, max_bytes, end, min_one_batch, may_wait)
        if not isinstance(done.error, NotCached):
            completion: Completion[LogSlice] = Completion()
            directory.open_files.unpin(file)
            _fail(log, segment, completion, done.error)
            return completion
    if not may_wait:
        directory.open_files.unpin(file)
        return Completion.failed(NotCached())
    operation.cached = False
    return _read_from_disk(log, segment, operation, end)


def _read_from_disk(
    log: LogState, segment: Segment, operation: ReadOperation, end_offset: int
) -> Completion[LogSlice]:
    """Read from the disk. `end_offset` may lie in a later segment.

    The caller has pinned the segment's file, so that the file stays open until the read ends.
    """
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
                # All batches of this segment end below the offset. If compaction replaced the
                # segment during the read, the new segment may have the next batches, too, so repeat
                # the whole read. Otherwise read from the next segment.
                go_on = _read_again if segment.file.doomed else _read_next
                offset = operation.offset if segment.file.doomed else segment.base_offset
                following = go_on(
                    log, offset, operation.max_bytes, end_offset, operation.min_one_batch
                )
                _pass_on(following, completion)

    log.directory.lane.submit(operation, Work.READ, "read from disk").then(read_done)
    return completion


def _read_next(
    log: LogState,
    base_offset: int,
    max_bytes: int,
    end: int,
    min_one_batch: bool,
    may_wait: bool = True,
) -> Completion[LogSlice]:
    """Read from the next segment, because compaction removed the rest of the segment at
    `base_offset`.
    """
    following = [base for base in log.base_offsets if base > base_offset]
    if not following or following[0] >= end:
        return Completion.of(LogSlice(b""))
    offset = max(following[0], log.log_start_offset)
    return _read_again(log, offset, max_bytes, end, min_one_batch, may_wait)


def _read_again(
    log: LogState,
    offset: int,
    max_bytes: int,
    end: int,
    min_one_batch: bool,
    may_wait: bool = True,
) -> Completion[LogSlice]:
    """Repeat a read from its beginning, because the log's files changed during the read."""
    if log.is_closed:
        return Completion.failed(
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{log.topic_partition} is gone")
        )
    try:
        return _read(log, offset, max_bytes, end, min_one_batch, may_wait)
    except KafkaError as error:
        return Completion.failed(error)


def _operation(
    log: LogState,
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
        # The read needs the offset of the last batch that fits into `max_bytes`. To find this
        # batch, go from header to header, beginning at the last indexed batch that surely fits.
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
        end if limit_is_end else segment_end,
        max_bytes,
        min_one_batch,
        walk_from,
        index.least_at_floor(offset),
        cached=True,
    )


def _remember(log: LogState, segment: Segment, slice_: LogSlice) -> None:
    """Remember the position at which a read ended, because the reader's next read begins there."""
    slice_.base_offset = segment.base_offset
    if slice_.next_offset >= 0 and not segment.file.doomed:
        ends = log.read_ends
        ends.pop(slice_.next_offset, None)
        ends[slice_.next_offset] = (segment.base_offset, slice_.end_position)
        if len(ends) > _MAX_READ_ENDS:
            del ends[next(iter(ends))]


def _out_of_range(log: LogState, offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} of {log.topic_partition}, "
        f"which has {log.log_start_offset} to {log.log_end_offset}",
    )


def _pass_on(done: Completion[T], completion: Completion[T]) -> None:
    def settle(finished: Completion[T]) -> None:
        if finished.error is not None:
            completion.fail(finished.error)
        else:
            completion.resolve(finished.result())

    done.then(settle)


def _fail(
    log: LogState, segment: Segment, completion: Completion[LogSlice], error: BaseException
) -> None:
    """Fail a read with an error that says why the bytes could not be read.

    Bytes may be missing because a truncation or deletion on the directory's thread has removed
    them, before the event loop learns of it. Such missing bytes are neither damage nor a failure of
    the disk.
    """
    if log.truncating_to is not None and is_loss(error):
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


def recheck(log: LogState, segment: Segment, found: CorruptBatch) -> Completion[None]:
    """Check all batches of a `segment` in which a read found an error.

    If only the index was damaged, it is rebuilt and the returned completion succeeds. If batches
    are damaged, the damage is reported to the directory and the completion fails with
    CORRUPT_MESSAGE. The returned completion fails with NOT_LEADER_OR_FOLLOWER if the log was
    truncated during the check, and with StorageError if the disk failed.
    """
    completion: Completion[None] = Completion()
    directory = log.directory
    truncations = log.truncations
    operation = recheck_operation(log, segment)
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
                text = f"{segment.file.path}: {wrong}"
                log.note_damage(end, text)
                directory.damaged(log.topic_partition, segment.file.path, wrong, is_located=True)
                completion.fail(KafkaError(ErrorCode.CORRUPT_MESSAGE, text))

    directory.lane.submit(operation, Work.SLOW, "check a segment").then(checked)
    return completion


async def find_damage(log: LogState) -> bool:
    """Check the segments in order, and note the first damage; return whether any was found.

    The log cleaner calls this function, because it does not know which segment is damaged. The
    damage is reported to the directory, as after a failed read (V68).
    """
    for segment in list(log.segments):
        if segment not in log.segments or log.is_closed:
            continue
        operation, truncations = recheck_operation(log, segment), log.truncations
        directory = log.directory
        directory.open_files.pin(segment.file)
        try:
            _, end, wrong = await directory.lane.submit(operation, Work.SLOW, "check a segment")
        except StorageError as error:
            # A closed log's files may have been renamed, so missing files are no damage.
            if not (log.is_closed and is_loss(error)):
                directory.failed(error)
            return False
        finally:
            directory.open_files.unpin(segment.file)
        if log.truncations != truncations or segment not in log.segments:
            return False
        if wrong is not None:
            log.note_damage(end, f"{segment.file.path}: {wrong}")
            directory.damaged(log.topic_partition, segment.file.path, wrong, is_located=True)
            return True
    return False


def recheck_operation(log: LogState, segment: Segment) -> Recheck:
    """Return an operation that checks all current batches of `segment`."""
    following = [base for base in log.base_offsets if base > segment.base_offset]
    return Recheck(
        segment, segment.size_bytes, log.directory.default_config.index_interval_bytes,
        following[0] if following else log.log_end_offset, log.epochs.latest_epoch,
    )  # fmt: skip


def _believe(log: LogState, segment: Segment, right: Segment, size_bytes: int) -> None:
    """Use the indexes of `right`, which were rebuilt; add entries of batches that were appended
    during the rebuild.
    """
    index, time_index = right.index or OffsetIndex(0), right.time_index or TimeIndex(0)
    if segment.index is not None:
        for offset, position in segment.index.entries():
            if position >= size_bytes:
                index.append(offset, position)
    segment.index, segment.time_index = index, time_index
    log.read_ends.clear()


#: Timestamps in requests with a special meaning: the log end, and the log start.
LATEST: Final = -1
EARLIEST: Final = -2


def offset_for_timestamp(
    log: LogState, timestamp_ms: int, end_offset: int
) -> Completion[Found | None]:
    """Find the first record at or after a time; see PartitionLog.offset_for_timestamp."""
    candidates = [
        segment
        for segment in log.segments
        if segment.max_timestamp_ms >= timestamp_ms and segment.base_offset < end_offset
    ]
    return _search(log, candidates, timestamp_ms, log.log_start_offset, end_offset)


def offsets_before(log: LogState, timestamp_ms: int, count: int, now_ms: int) -> list[int]:
    """Return base offsets of segments; see PartitionLog.offsets_before."""
    found = [
        (max(segment.base_offset, log.log_start_offset), segment.last_modified_ms)
        for segment in log.segments
    ]
    if log.segments[-1].size_bytes:
        found.append((log.log_end_offset, now_ms))
    if timestamp_ms == EARLIEST:
        found = found[:1]
    elif timestamp_ms != LATEST:
        while found and found[-1][1] > timestamp_ms:
            found.pop()
    return sorted(
        (offset for offset, _ in found[max(0, len(found) - max(count, 0)) :]), reverse=True
    )


def max_timestamp(log: LogState) -> Completion[Found | None]:
    """Find the record with the largest timestamp; see PartitionLog.max_timestamp.

    As in Kafka, this may be a record below the log start whose segment still exists.
    """
    best: Segment | None = None
    for segment in log.segments:
        if best is None or segment.max_timestamp_ms > best.max_timestamp_ms:
            best = segment
    if best is None or best.max_timestamp_ms < 0:
        return Completion.of(None)
    start_offset = best.base_offset
    return _search(log, [best], best.max_timestamp_ms, start_offset, log.log_end_offset)


def _search(
    log: LogState,
    candidates: list[Segment],
    timestamp_ms: int,
    start_offset: int,
    end_offset: int,
) -> Completion[Found | None]:
    """Search the `candidates` in order for the first record at or after the timestamp."""
    if not candidates:
        return Completion.of(None)
    completion: Completion[Found | None] = Completion()
    segment = candidates[0]

    def fail(error: BaseException) -> None:
        if log.truncating_to is not None and is_loss(error):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            error = KafkaError(code, f"{log.topic_partition} is being truncated")
        elif isinstance(error, CorruptBatch):
            # The segment's index or batches are damaged. `recheck` reports damaged batches, and
            # repairs a damaged index for the next search.
            recheck(log, segment, error)
            error = KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path}: {error}")
        elif log.is_closed or segment not in log.segments:
            error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{segment.file.path} is gone")
        else:
            log.directory.failed(error)
        completion.fail(error)

    def indexed(done: Completion[None]) -> None:
        if done.error is not None:
            fail(done.error)
            return
        if segment.file.doomed and not log.is_closed:
            # Retention or compaction removed the segment during the search, so search the current
            # segments.
            _pass_on(offset_for_timestamp(log, timestamp_ms, end_offset), completion)
            return
        search = TimestampSearch(
            segment.file,
            segment.base_offset,
            _start_position(segment, timestamp_ms),
            segment.size_bytes,
            timestamp_ms,
            start_offset,
            min(end_offset, log.log_end_offset),
        )
        log.directory.open_files.pin(segment.file)
        log.directory.lane.submit(search, Work.SLOW, "search by time").then(searched)

    def searched(done: Completion[Found | None]) -> None:
        log.directory.open_files.unpin(segment.file)
        if done.error is not None:
            fail(done.error)
        elif done.result() is not None or len(candidates) == 1:
            completion.resolve(done.result())
        else:
            following = _search(log, candidates[1:], timestamp_ms, start_offset, end_offset)
            _pass_on(following, completion)

    log.directory.with_index(segment).then(indexed)
    return completion


def _start_position(segment: Segment, timestamp_ms: int) -> int:
    if segment.index is None or segment.time_index is None:
        return 0
    return segment.index.floor(segment.time_index.floor(timestamp_ms))
