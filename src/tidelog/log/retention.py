"""Retention: the removal of old segments.

Retention first renames the files of a segment, and removes them later. It removes the oldest
segments first. A segment is removed if it is too old, if the log exceeds its size limit even
without the segment, or if the log start lies after the segment. All removed segments are completely
below the high watermark. Each rename is on disk before the next rename begins, because renames may
otherwise reach the disk in any order. A crash may thus undo removals, but never leaves a hole in
the log. The last segment is removed, too, if all its records are too old; a new empty segment is
created first. Producer state outlives the removed records: a producer snapshot is on disk before
the records are removed (V64). Source: UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.core.completion import Completion
from tidelog.core.errors import FULL_ERRNOS
from tidelog.core.ports import Files, Work
from tidelog.log import names
from tidelog.log.config import LogConfig
from tidelog.log.log_state import LogState
from tidelog.log.segment import Segment
from tidelog.log.segment_files import DamagedSegment, SegmentFile, producers_at


def segments_to_delete(
    segments: list[Segment],
    config: LogConfig,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    size_bytes: int,
    now_ms: int,
) -> int:
    """Return how many of the oldest segments retention must remove."""
    excess = size_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
    count = 0
    for segment in segments:
        last = count + 1 == len(segments)
        end = log_end_offset if last else segments[count + 1].base_offset
        if end > high_watermark or (last and segment.size_bytes == 0):
            break
        goes = not last and end <= log_start_offset
        if config.delete_enabled and not goes:
            if config.retention_ms >= 0:
                goes = now_ms - segment.largest_timestamp_ms > config.retention_ms
            if config.retention_bytes >= 0 and excess >= segment.size_bytes:
                goes = True
        if not goes:
            break
        excess -= segment.size_bytes
        count += 1
    return count


def enforce(
    log: LogState, now_ms: int, high_watermark: int, roll: Callable[[Segment], None]
) -> Completion[int]:
    """Apply retention; see PartitionLog.enforce_retention.

    `roll` makes a new segment the log's active segment.
    """
    completion: Completion[int] = Completion()
    if log.is_closed or log.directory.failure is not None:
        return Completion.of(0)
    log.producers.expire(log.directory.clock.monotonic_ms(), log.config.producer_id_expiration_ms)
    if _count(log, now_ms, high_watermark) == 0:
        return Completion.of(0)

    def start() -> None:
        count = _count(log, now_ms, high_watermark)
        if log.is_closed or count == 0:
            log.end_turn()
            completion.resolve(0)
        elif count == len(log.segments):
            _roll_empty(log, now_ms, roll, lambda error: begun(count, error))
        else:
            begun(count, None)

    def begun(count: int, error: BaseException | None) -> None:
        if error is None:
            _keep_producers(log, count, lambda failure: kept(count, failure))
        else:
            kept(count, error)

    def kept(count: int, error: BaseException | None) -> None:
        if error is None:
            _remove(log, count, high_watermark, completion)
        else:
            log.end_turn()
            log.directory.failed(error)
            completion.fail(error)

    log.take_turn(start, after_queue=False)
    return completion


def _count(log: LogState, now_ms: int, high_watermark: int) -> int:
    return segments_to_delete(
        log.segments,
        log.config,
        log.log_start_offset,
        log.log_end_offset,
        high_watermark,
        log.size_bytes,
        now_ms,
    )


def _roll_empty(
    log: LogState,
    now_ms: int,
    roll: Callable[[Segment], None],
    then: Callable[[BaseException | None], None],
) -> None:
    """Begin a new segment at the log end; call `then` with the error or None."""
    segment = Segment(log.path, log.log_end_offset, now_ms)
    file = segment.file
    sync_names = log.names_unsynced
    log.directory.open_files.pin(file)

    def create(files: Files) -> None:
        if sync_names:
            files.fsync_directory(log.path)
        files.truncate(file.handle(files, create=True), 0)

    def created(done: Completion[None]) -> None:
        log.directory.open_files.unpin(file)
        if done.error is None:
            roll(segment)
        then(done.error)

    work = Work.SYNC if sync_names else Work.FAST
    log.directory.lane.submit(create, work, "roll").then(created)


def _keep_producers(
    log: LogState, count: int, then: Callable[[BaseException | None], None]
) -> None:
    """Write a producer snapshot at the first segment that stays, then call `then` (V64).

    Without this snapshot, after a crash, the broker would know only producers of the remaining
    records. If a producer resent a removed batch, because its response was lost, the broker would
    reject it with OUT_OF_ORDER_SEQUENCE_NUMBER.
    """
    first = log.segments[count].base_offset
    if first in log.snapshots or not len(log.producers):
        then(None)
        return
    known = log.new_snapshots.get(first)
    snapshots, now_ms = list(log.snapshots), log.directory.clock.monotonic_ms()
    going = [SegmentFile.of(each) for each in log.segments[:count]]
    indexes = [
        segment.path(suffix)
        for segment in log.segments[:count]
        for suffix in (names.INDEX, names.TIME_INDEX)
    ]

    def write(files: Files) -> bool:
        data = known
        if data is None:
            # The snapshot that the segment's roll wrote is missing (a crash lost it): build it
            # again from the batches.
            try:
                producers = producers_at(files, log.path, going, snapshots, first, now_ms)
            except DamagedSegment:
                # A segment is damaged, so its producers cannot be read; retention removes the
                # segment without a snapshot.
                return False
            data = producers.to_snapshot()
        path = f"{log.path}/{names.offset_name(first, names.SNAPSHOT)}"
        try:
            files.replace_file(path, data, sync=True)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            # The disk is full. Removing the old segments' indexes, which can be rebuilt, makes room
            # (D14).
            for index in indexes:
                if files.exists(index):
                    files.unlink(index)
            files.replace_file(path, data, sync=True)
        return True

    def written(done: Completion[bool]) -> None:
        if done.error is None and done.result():
            log.new_snapshots.pop(first, None)
            log.snapshots = sorted({*log.snapshots, first})
        then(done.error)

    log.directory.lane.submit(write, Work.SLOW, "keep producers").then(written)


def _remove(log: LogState, count: int, high_watermark: int, completion: Completion[int]) -> None:
    """Remove the oldest segments from the log, then from the directory.

    The log drops its segments first, so that no new read opens a file that is being renamed.
    """
    gone = log.segments[:count]
    log.drop_oldest(count)
    first = log.segments[0].base_offset
    assert first <= high_watermark, f"{log.path}: removed up to {first}, beyond {high_watermark}"
    groups = [
        [
            segment.path(suffix)
            for suffix in (names.LOG, names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)
        ]
        for segment in gone
    ]
    if any(offset >= first for offset in log.snapshots):
        old = [offset for offset in log.snapshots if offset < first]
        groups[-1] += [f"{log.path}/{names.offset_name(offset, names.SNAPSHOT)}" for offset in old]
        log.snapshots = log.snapshots[len(old) :]
    # Note whether some names in the directory are not durable yet: names that earlier renames gave,
    # or the name of the oldest remaining segment.
    names_unsynced, log.names_changed = log.names_unsynced, True
    log.is_removing = True

    def rename(files: Files) -> list[str]:
        """Rename the segments one by one, each after the previous rename is durable.

        A crash must not leave a hole between segments, because recovery would remove the valid
        segments after a hole above the recovery point.
        """
        renamed: list[str] = []
        sync_first = names_unsynced
        for group in groups:
            there = [path for path in group if files.exists(path)]
            if there and sync_first:
                files.fsync_directory(log.path)
            for path in there:
                files.rename(path, path + names.DELETED)
            renamed += [path + names.DELETED for path in there]
            sync_first = True
        return renamed

    def renamed(done: Completion[list[str]]) -> None:
        # The directory needs another sync: a flush during this removal may have synced it before
        # the last rename.
        log.is_removing, log.names_changed = False, True
        log.end_turn()
        if done.error is not None:
            log.directory.failed(done.error)
            completion.fail(done.error)
            return
        log.directory.remove_later(done.result(), log.config.file_delete_delay_ms)
        completion.resolve(count)

    log.directory.lane.submit(rename, Work.SLOW, "delete segments").then(renamed)
