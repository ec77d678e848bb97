"""Truncation of a log at a batch boundary: the file operation and the steps around it (V38).

First, the truncation finds the batch boundary. The directory then lowers its checkpoints to the
batch boundary (`lower`): new batches will reuse the removed offsets, and recovery must check them.
Next, the truncation removes segments beyond the boundary, the last segment first, and makes the
removals durable. Then it truncates the remaining segment and syncs it. If the broker crashes
between two steps, the disk has a prefix of the old log or the truncated log, never a log with a
hole. Offsets, indexes, leader epochs and producer state are updated last. In a log with known
damage, the truncation verifies checksums to find the boundary, because a damaged header may contain
any offset (V68). If the remembered batches of a producer do not reach back to the boundary, the
producer state is rebuilt from a snapshot and later batches (`segment_files.producers_at`).
"""

from __future__ import annotations

from dataclasses import field

from tidelog.core.completion import Completion
from tidelog.core.dataclass import dataclass
from tidelog.core.ports import Buffer, Files, Work
from tidelog.log import names
from tidelog.log.log_reads import recheck_operation
from tidelog.log.log_state import LogState
from tidelog.log.open_files import OpenFile
from tidelog.log.producer_state import ProducerState
from tidelog.log.scan import Scan
from tidelog.log.segment import Segment
from tidelog.log.segment_files import (
    DamagedSegment,
    SegmentFile,
    producers_at,
    remove_segment_files,
    unlink_if_present,
)
from tidelog.records.batch import HEADER_BYTES, NO_TIMESTAMP, BatchView, CorruptBatch


@dataclass(slots=True)
class TruncationPoint:
    """The position at which a segment is truncated: the end of the last batch that lies wholly
    below the requested offset.
    """

    position: int
    #: Offset after the last kept batch, or None if no batch is kept.
    end_offset: int | None = None
    #: Base offset of the first removed batch; the requested offset if no batch is removed.
    first_gone: int = -1
    #: Largest timestamp of the batches between the start of the search and the truncation position.
    #: `offset_of_max_timestamp` is the last offset of the batch with the timestamp
    #: `max_timestamp_ms`.
    max_timestamp_ms: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    #: Largest timestamp of the segment's first batch, if the search read it.
    first_timestamp_ms: int = NO_TIMESTAMP


def find_truncation_point(
    files: Files,
    file: OpenFile,
    base_offset: int,
    scan_from: int,
    size_bytes: int,
    offset: int,
    cached: bool,
    wants_first: bool = False,
) -> TruncationPoint | None:
    """Find the truncation point of a segment, from a known batch start on. Raises OSError.

    With `cached`, return None if the read would wait for the disk. With `wants_first`, also read
    the timestamp of the segment's first batch.
    """
    handle = file.handle(files)
    missed = False

    def read(size: int, position: int) -> Buffer:
        nonlocal missed
        if not cached:
            return files.pread(handle, size, position)
        data = files.pread_cached(handle, size, position)
        missed = missed or data is None
        return data if data is not None else b""

    scan = Scan(read, base_offset, scan_from, size_bytes)
    point = TruncationPoint(scan_from)
    if wants_first and scan_from > 0:
        header = read(HEADER_BYTES, 0)
        if len(header) == HEADER_BYTES:
            point.first_timestamp_ms = BatchView(header).max_timestamp
    for position, batch in scan:
        if batch.last_offset >= offset:
            point.first_gone = batch.base_offset
            break
        if position == 0:
            point.first_timestamp_ms = batch.max_timestamp
        point.position = position + batch.size_bytes
        point.end_offset = batch.next_offset
        if batch.max_timestamp > point.max_timestamp_ms:
            point.max_timestamp_ms = batch.max_timestamp
            point.offset_of_max_timestamp = batch.last_offset
    else:
        if scan.problem is None:
            point.first_gone = offset
    return None if missed else point


@dataclass(slots=True)
class TruncateOperation:
    """An operation that removes whole segments, then truncates the last remaining segment."""

    directory: str
    #: Base offsets of segments to remove, the last segment first.
    remove: list[int]
    #: Offsets of the producer snapshots to remove.
    snapshots: list[int]
    #: File to truncate; None if all segments are removed and a new segment begins at `start_at`.
    kept: OpenFile | None
    truncate_at: int = 0
    #: Base offset of the new, empty segment if all segments are removed, else None.
    start_at: int | None = None

    removed: list[int] = field(default_factory=list)

    def __call__(self, files: Files) -> None:
        """Remove and truncate segments. Raises OSError; `removed` then has the removed segments."""
        for offset in self.snapshots:
            unlink_if_present(
                files, f"{self.directory}/{names.offset_name(offset, names.SNAPSHOT)}"
            )
        for base_offset in self.remove:
            remove_segment_files(files, self.directory, base_offset)
            self.removed.append(base_offset)
        if self.remove:
            files.fsync_directory(self.directory)
        if self.kept is not None:
            handle = self.kept.handle(files)
            files.truncate(handle, self.truncate_at)
            self.kept.write_failed = False
            # New batches reuse the offsets and the place of the removed batches. If a power loss
            # undid the truncation in one part of the file and kept new batches in another, a
            # removed batch, with a valid checksum, would lie among the new batches.
            files.fsync(handle)
        if self.start_at is not None:
            path = f"{self.directory}/{names.offset_name(self.start_at, names.LOG)}"
            files.close(files.open(path, write=True, create=True))


def truncate_to(log: LogState, offset: int, done: Completion[None]) -> None:
    """Truncate `log` at or before `offset`; complete `done` when files and state are truncated."""
    if offset >= log.log_end_offset:
        # Drop leader epochs from `offset` on even without records: they may contradict the leader's
        # epochs.
        log.epochs.truncate_from_end(offset)
        done.resolve(None)
        return
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset, done)
        return
    kept = next(s for s in reversed(log.segments) if s.base_offset <= offset)
    is_damaged = log.damage is not None and offset <= log.damage.offset
    find = _find_before_damage if is_damaged else _find
    log.directory.with_index(kept).then(
        lambda indexed: (
            done.fail(indexed.error) if indexed.error is not None else find(log, kept, offset, done)
        )
    )


def _find_before_damage(log: LogState, kept: Segment, offset: int, done: Completion[None]) -> None:
    """Find the batch boundary at which to truncate, before the damage (V68).

    All batches of the segment are checked, because the index and the headers of a damaged segment
    cannot be trusted.
    """
    operation = recheck_operation(log, kept)
    log.directory.open_files.pin(kept.file)

    def checked(completion: Completion[tuple[Segment, int, CorruptBatch | None]]) -> None:
        log.directory.open_files.unpin(kept.file)
        if completion.error is not None:
            done.fail(completion.error)
            return
        right, end, wrong = completion.result()
        if wrong is not None and end < offset:
            # The damage lies below `offset`, so the truncation fails: records below `offset` may be
            # committed.
            found = DamagedSegment(kept.file.path, wrong.position, end, wrong.reason)
            done.fail(_begun_again(log, found))
            return
        kept.index, kept.time_index = right.index, right.time_index
        _find(log, kept, offset, done, right.size_bytes)

    log.directory.lane.submit(operation, Work.SLOW, "check a segment").then(checked)


def _find(
    log: LogState,
    kept: Segment,
    offset: int,
    done: Completion[None],
    size_bytes: int | None = None,
) -> None:
    """Find the batch boundary at or below `offset`, and lower the checkpoints to this boundary.

    `size_bytes` is the size of the undamaged batches if some batches are damaged.
    """
    if kept.index is None:
        raise AssertionError(f"the index of {kept.file.path} is not in memory")
    file, size_bytes = kept.file, kept.size_bytes if size_bytes is None else size_bytes
    # Start the scan at an index entry whose batch ends below `offset`, so that this batch stays.
    scan_from = kept.index.floor(offset - 1)
    log.directory.open_files.pin(file)

    def found(completion: Completion[TruncationPoint | None]) -> None:
        point = None if completion.error is not None else completion.result()
        if point is None and completion.error is None:
            search(False, Work.SLOW)
            return
        log.directory.open_files.unpin(file)
        if point is None:
            done.fail(completion.error or RuntimeError("no truncation point"))
            return
        _lower(log, kept, point, offset, done)

    def search(cached: bool, work: Work) -> None:
        log.directory.lane.submit(
            lambda files: find_truncation_point(
                files,
                file,
                kept.base_offset,
                scan_from,
                size_bytes,
                offset,
                cached,
                kept.first_timestamp_ms < 0,
            ),
            work,
            "find cut",
        ).then(found)

    search(True, Work.FAST)


def _lower(
    log: LogState, kept: Segment, point: TruncationPoint, offset: int, done: Completion[None]
) -> None:
    """Lower all checkpoints to the new log end, then truncate the files."""
    end = kept.base_offset if point.end_offset is None else point.end_offset
    # Compaction may have left a gap before the first removed batch; the new log end is after this
    # gap.
    end = max(end, min(offset, point.first_gone))
    assert kept.base_offset <= end <= offset, f"{log.path}: {kept.base_offset}, {end}, {offset}"
    log.truncating_to = end
    log.recovery_point = min(log.recovery_point, end)
    log.directory.lower(log.topic_partition, end).then(
        lambda lowered: (
            done.fail(lowered.error)
            if lowered.error is not None
            else _truncate_files(log, kept, point, end, done)
        )
    )


def _truncate_files(
    log: LogState, kept: Segment, point: TruncationPoint, end: int, done: Completion[None]
) -> None:
    removed = [segment for segment in log.segments if segment.base_offset > kept.base_offset]
    operation = TruncateOperation(
        directory=log.path,
        remove=[segment.base_offset for segment in reversed(removed)],
        snapshots=[snapshot for snapshot in log.snapshots if snapshot > end],
        kept=kept.file,
        truncate_at=point.position,
    )
    log.directory.open_files.pin(kept.file)
    log.directory.indexes.forget(kept)

    def truncated(completion: Completion[None]) -> None:
        log.directory.open_files.unpin(kept.file)
        _drop(log, [s for s in removed if s.base_offset in operation.removed])
        if completion.error is not None:
            _fail_in_between(log, operation, completion.error, done)
            return
        _apply(log, kept, point, end)
        log.reset_ends(end)
        log.directory.tracer.event(
            "log_truncated", partition=str(log.topic_partition), end_offset=end
        )
        _restore_producers(log, done)

    log.directory.lane.submit(operation, Work.SLOW, "truncate").then(truncated)


def _fail_in_between(
    log: LogState, operation: TruncateOperation, error: BaseException, done: Completion[None]
) -> None:
    """Fail a truncation that has removed segments; the log now ends before the removed segments
    (V38).

    The producer state is rebuilt for the new log end. Otherwise the log would acknowledge a lost
    batch as a duplicate when its producer resends it.
    """
    log.snapshots = [each for each in log.snapshots if each not in operation.snapshots]
    log.reset_ends(_end_of_last(log))
    restored: Completion[None] = Completion()
    _restore_producers(log, restored)
    restored.then(lambda _: done.fail(error))


def _end_of_last(log: LogState) -> int:
    """Return the new log end after a failed truncation removed only the last segments."""
    following = [base for base in log.base_offsets if base > log.segments[-1].base_offset]
    return min([*following, log.log_end_offset])


def _apply(log: LogState, kept: Segment, point: TruncationPoint, end: int) -> None:
    """Update the state of the kept segment after its file was truncated."""
    kept.size_bytes = point.position
    kept.last_modified_ms = log.directory.clock.wall_ms()
    kept.sealed = False
    index, time_index = kept.index, kept.time_index
    if index is None or time_index is None:
        raise AssertionError(f"the index of {kept.file.path} is not in memory")
    index.truncate_to(end)
    time_index.truncate_to(end)
    kept.max_timestamp_ms, kept.offset_of_max_timestamp = time_index.last()
    if point.max_timestamp_ms > kept.max_timestamp_ms:
        kept.max_timestamp_ms = point.max_timestamp_ms
        kept.offset_of_max_timestamp = point.offset_of_max_timestamp
    kept.bytes_since_index = kept.size_bytes - index.last_position()
    if kept.size_bytes == 0:
        kept.first_timestamp_ms = -1
        kept.created_ms = kept.last_modified_ms
    elif kept.first_timestamp_ms < 0:
        kept.first_timestamp_ms = point.first_timestamp_ms


def _drop(log: LogState, segments: list[Segment]) -> None:
    for segment in segments:
        log.segments.remove(segment)
        log.directory.open_files.forget(segment.file)
        log.directory.indexes.forget(segment)


def _restore_producers(log: LogState, done: Completion[None]) -> None:
    if log.producers.truncate_to(log.log_end_offset):
        done.resolve(None)
        return
    log.directory.tracer.mark("producers_rebuilt")
    path, end, now_ms = log.path, log.log_end_offset, log.directory.clock.monotonic_ms()
    snapshots = list(log.snapshots)
    segments = [SegmentFile.of(segment) for segment in log.segments]

    def read(completion: Completion[ProducerState]) -> None:
        if completion.error is not None:
            # Close the log: its producer state is unknown, so it would accept any batch of any
            # producer.
            log.break_off("its producer state could not be read")
            done.fail(_begun_again(log, completion.error))
            return
        producers = completion.result()
        # Keep the refused batches, which are only in memory (V38).
        producers.refused = log.producers.refused
        log.producers = producers
        done.resolve(None)

    log.directory.lane.submit(
        lambda files: producers_at(files, path, segments, snapshots, end, now_ms),
        Work.SLOW,
        "rebuild producer state",
    ).then(read)


def _begun_again(log: LogState, error: BaseException) -> BaseException:
    """Return the error of a failed truncation; if the log is damaged, also fail the directory.

    The broker's next start truncates the log to the damaged offset, and the follower refetches the
    records (V68).
    """
    if not isinstance(error, DamagedSegment):
        return error
    directory, why = log.directory, f"{error.path}: {error}"
    directory.tracer.event("log_corrupt", partition=str(log.topic_partition), path=error.path)
    directory.begin_again_at(log.topic_partition, error.offset, why)
    return directory.failure or error


def truncate_fully(log: LogState, offset: int, done: Completion[None]) -> None:
    """Remove all segments and begin a new segment at `offset`."""
    # Set the recovery point to 0: a crash after the removal of all files leaves an empty log, and
    # the broker does not start with a log that ends below its recovery point.
    log.recovery_point = 0
    log.truncating_to = offset
    operation = TruncateOperation(
        directory=log.path,
        remove=[segment.base_offset for segment in reversed(log.segments)],
        snapshots=list(log.snapshots),
        kept=None,
        start_at=offset,
    )

    def lowered(completion: Completion[None]) -> None:
        if completion.error is not None:
            done.fail(completion.error)
        else:
            log.directory.lane.submit(operation, Work.SLOW, "truncate fully").then(removed)

    def removed(completion: Completion[None]) -> None:
        if completion.error is not None:
            _drop(log, [s for s in log.segments if s.base_offset in operation.removed])
            if log.segments:
                _fail_in_between(log, operation, completion.error, done)
            else:
                log.break_off("its files are gone")
                done.fail(completion.error)
            return
        log.damage = None
        _drop(log, list(log.segments))
        log.segments.append(Segment(log.path, offset, log.directory.clock.wall_ms()))
        log.producers.clear()
        log.snapshots.clear()
        log.new_snapshots.clear()
        log.epochs.clear()
        log.log_start_offset = offset
        log.reset_ends(offset)
        log.directory.tracer.event(
            "log_restarted", partition=str(log.topic_partition), start_offset=offset
        )
        done.resolve(None)

    log.directory.lower(log.topic_partition, 0).then(lowered)
