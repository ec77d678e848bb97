"""Finds records by timestamp, on the directory's thread.

The time index says from which batch on a time can be found; batches are then looked at by their
header, and the one that reaches the time is read whole and searched record by record, because only
its records tell. Source: LogSegment.findOffsetByTimestamp, UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MAX_DECOMPRESSED_BYTES
from tidelog.core.ports import Files, Work
from tidelog.log.open_files import OpenFile
from tidelog.log.reading import is_loss
from tidelog.log.scan import Scan, whole_batch
from tidelog.log.segment import Segment
from tidelog.log.verifying import recheck
from tidelog.records.batch import CorruptBatch
from tidelog.records.reader import read_columns

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog

#: (timestamp in ms, offset, leader epoch) of a record.
Found = tuple[int, int, int]


@dataclass(slots=True)
class TimestampSearch:
    """The first record of one segment, from `start_offset` on, with at least this timestamp."""

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


def offset_for_timestamp(
    log: PartitionLog, timestamp_ms: int, end_offset: int
) -> Completion[Found | None]:
    """See PartitionLog.offset_for_timestamp."""
    candidates = [
        segment
        for segment in log.segments
        if segment.max_timestamp_ms >= timestamp_ms and segment.base_offset < end_offset
    ]
    return _search(log, candidates, timestamp_ms, end_offset)


def max_timestamp(log: PartitionLog) -> Completion[Found | None]:
    """See PartitionLog.max_timestamp."""
    best: Segment | None = None
    for segment in log.segments:
        if best is None or segment.max_timestamp_ms > best.max_timestamp_ms:
            best = segment
    if best is None or best.max_timestamp_ms < 0:
        return Completion.of(None)
    return _search(log, [best], best.max_timestamp_ms, log.log_end_offset)


def _search(
    log: PartitionLog, candidates: list[Segment], timestamp_ms: int, end_offset: int
) -> Completion[Found | None]:
    """Search the segments one after the other until one has the record."""
    if not candidates:
        return Completion.of(None)
    completion: Completion[Found | None] = Completion()
    segment = candidates[0]

    def fail(error: BaseException) -> None:
        if log.pending_cut is not None and is_loss(error):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            error = KafkaError(code, f"{log.topic_partition} is being truncated")
        elif isinstance(error, CorruptBatch):
            # Its index or its batches: told, and mended, for whoever asks next.
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
            # Retention or compaction has taken it: look at what is there instead.
            anew = offset_for_timestamp(log, timestamp_ms, end_offset)
            anew.then(_passing_on(completion))
            return
        search = TimestampSearch(
            segment.file,
            segment.base_offset,
            _start_position(segment, timestamp_ms),
            segment.size_bytes,
            timestamp_ms,
            log.log_start_offset,
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
            following = _search(log, candidates[1:], timestamp_ms, end_offset)
            following.then(_passing_on(completion))

    log.directory.with_index(segment).then(indexed)
    return completion


def _start_position(segment: Segment, timestamp_ms: int) -> int:
    if segment.index is None or segment.time_index is None:
        return 0
    return segment.index.floor(segment.time_index.floor(timestamp_ms))


def _passing_on(
    completion: Completion[Found | None],
) -> Callable[[Completion[Found | None]], None]:
    def tell(done: Completion[Found | None]) -> None:
        if done.error is not None:
            completion.fail(done.error)
        else:
            completion.resolve(done.result())

    return tell
