"""The log cleaner of a broker: it chooses the next log, limits the I/O rate, and compacts the log.

The cleaner compacts one log at a time. Of the logs that are due for compaction, it chooses the log
with the largest share of dirty bytes. If a log has illegible batches, the cleaner reports the log
once and skips it until it is truncated (V68). The cleaner keeps its reads and writes below a rate.

A run compacts one log, as `compaction` decides, on the directory's thread for long operations. A
run consists of slices that read at most `slice_bytes` (or one larger batch), so that other
operations of the directory wait only for milliseconds. While a run reads files, it pins them, so
that they stay open (`open_files`). A run changes the log only at its end, when it swaps segments.
Like a truncation, the swap excludes other operations on the log. If the log is truncated, deleted
or closed during a run, the run is void; the next run, or the broker's next start, removes the run's
files. After the swap, readers may still use the replaced segments. Source: LogCleaner,
LogCleanerManager, Cleaner.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field

from tidelog.core.completion import Completion
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import StorageError
from tidelog.core.limits import KIB, MIB
from tidelog.core.ports import Buffer, Clock, Files, Handle, Work
from tidelog.log import names
from tidelog.log.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS
from tidelog.log.compaction import (
    BatchFilter,
    CleanableLog,
    OffsetMap,
    cleanable,
    grouped,
    note_keys,
)
from tidelog.log.config import NEVER
from tidelog.log.log_reads import find_damage
from tidelog.log.log_state import LogState
from tidelog.log.open_files import OpenFile
from tidelog.log.segment import Segment
from tidelog.log.segment_files import SwapOperation, index_files, remove_cleaned
from tidelog.records.batch import (
    HEADER_BYTES,
    BatchView,
    CorruptBatch,
    check,
    iter_batches,
    size_of_batch,
)

#: The name under which the cleaner writes lines to the broker's log.
_LOGGER = "cleaner"
#: A function called after each slice (one part of a compaction) with the bytes that the slice read
#: and wrote.
Pace = Callable[[int], Awaitable[None]]


class Interrupted(Exception):
    """The error that ends a compaction because its log was truncated, closed or deleted."""


@dataclass(slots=True)
class CleaningStats:
    """The counters of one compaction of one log."""

    end_offset: int = 0
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(slots=True)
class _Chunk:
    """The complete batches that one read of a segment's file returned, and the position of the next
    read.
    """

    batches: list[BatchView]
    position: int


def _read_chunk(files: Files, file: OpenFile, position: int, end: int, slice_bytes: int) -> _Chunk:
    """Read and check at least one complete batch. Raises CorruptBatch, OSError."""
    handle = file.handle(files)
    wanted = min(max(slice_bytes, HEADER_BYTES), end - position)
    data = files.pread(handle, wanted, position)
    if len(data) >= HEADER_BYTES:
        size = size_of_batch(data, 0)
        if wanted < size <= end - position:
            data = files.pread(handle, size, position)
    walk = iter_batches(data)
    batches = list(walk)
    for batch in batches:
        check(batch)
    if not batches:
        raise CorruptBatch(position, "no whole batch is here")
    return _Chunk(batches, position + walk.end_position)


@dataclass(slots=True)
class _MapSlice:
    """An operation for one slice (part) of a compaction: it adds keys to the offset map.

    The operation returns the position at which the next slice begins, or -1 if the map is full.
    """

    file: OpenFile
    position: int
    end: int
    start_offset: int
    offset_map: OffsetMap
    slice_bytes: int
    max_decompressed_bytes: int

    def __call__(self, files: Files) -> int:
        chunk = _read_chunk(files, self.file, self.position, self.end, self.slice_bytes)
        for batch in chunk.batches:
            if self.offset_map.is_full:
                return -1
            note_keys(batch, self.offset_map, self.start_offset, self.max_decompressed_bytes)
        return chunk.position


@dataclass(slots=True)
class _Cleaned:
    """The unfinished segment that will replace a group of segments."""

    segment: Segment
    path: str
    handle: Handle | None = None

    def open(self, files: Files) -> Handle:
        """Return the handle of the new segment's file; the first call creates the empty file."""
        if self.handle is None:
            segment = self.segment
            remove_cleaned(files, segment.directory, segment.base_offset)
            self.handle = files.open(self.path, write=True, create=True)
        return self.handle


@dataclass(slots=True)
class _FilterSlice:
    """A file operation for one slice (part) of a compaction: it copies the records to keep.

    The operation returns the position at which the next slice begins.
    """

    source: OpenFile
    position: int
    end: int
    cleaned: _Cleaned
    keep: BatchFilter
    slice_bytes: int
    index_interval_bytes: int

    def __call__(self, files: Files) -> int:
        chunk = _read_chunk(files, self.source, self.position, self.end, self.slice_bytes)
        segment = self.cleaned.segment
        handle = self.cleaned.open(files)
        begin = segment.size_bytes
        kept: list[Buffer] = []
        for batch in chunk.batches:
            left = self.keep(batch)
            if left is not None:
                kept.append(left)
                segment.note_batch(
                    batch.last_offset,
                    len(left),
                    BatchView(left).max_timestamp,
                    self.index_interval_bytes,
                )
        data = memoryview(b"".join(kept))
        written = 0
        while written < len(data):
            written += files.pwritev(handle, [data[written:]], begin + written)
        return chunk.position


@dataclass(slots=True)
class Survey:
    """A file operation that reads, for each segment, the sizes of the indexes and the timestamp of
    the first batch.
    """

    segments: list[Segment]
    index_bytes: dict[Segment, tuple[int, int]] = field(default_factory=dict)
    first_timestamps_ms: dict[Segment, int] = field(default_factory=dict)

    def __call__(self, files: Files) -> None:
        for segment in self.segments:
            sizes = []
            for suffix in (names.INDEX, names.TIME_INDEX):
                path = segment.path(suffix)
                sizes.append(_size_of(files, path) if files.exists(path) else 0)
            self.index_bytes[segment] = sizes[0], sizes[1]
            if segment.first_timestamp_ms < 0 and segment.size_bytes:
                first = files.pread(segment.file.handle(files), HEADER_BYTES, 0)
                self.first_timestamps_ms[segment] = BatchView(first).max_timestamp


def _size_of(files: Files, path: str) -> int:
    handle = files.open(path)
    try:
        return files.size(handle)
    finally:
        files.close(handle)


class Cleaning:
    """One run of the cleaner over one log; all calls are on the event loop."""

    def __init__(
        self,
        log: LogState,
        plan: CleanableLog,
        offset_map: OffsetMap,
        now_ms: int,
        slice_bytes: int,
        pace: Pace,
    ) -> None:
        """`offset_map` must be empty; `now_ms` is the wall clock."""
        self._log = log
        self._plan = plan
        self._map = offset_map
        self._now_ms = now_ms
        self._slice_bytes = slice_bytes
        self._pace = pace
        self._truncations = log.truncations
        self._pinned: list[OpenFile] = []
        self.stats = CleaningStats()

    async def run(self) -> CleaningStats:
        """Compact the log. Raises Interrupted, CorruptBatch, StorageError."""
        log, plan = self._log, self._plan
        try:
            last_offsets = log.producers.last_offsets(plan.first_uncleanable_offset)
            await self._build_map()
            await self._claim()
            end = self._map.latest_offset + 1
            if end > plan.first_dirty_offset:
                keep = BatchFilter(
                    self._map, plan.first_uncleanable_offset, last_offsets, log.config, self._now_ms
                )
                for group in await self._groups(end):
                    await self._clean(group, keep)
            self._check([])
            self.stats.end_offset = max(end, plan.first_dirty_offset)
            self.stats.keys = len(self._map)
            await log.directory.compacted(log.topic_partition, self.stats.end_offset)
            return self.stats
        except (CorruptBatch, StorageError):
            # If the log was truncated or deleted during the run, raise Interrupted instead of this
            # error: the log's files may then hold anything, so the error proves no damage.
            self._check([])
            raise
        finally:
            for file in self._pinned:
                log.directory.open_files.unpin(file)

    def _check(self, segments: list[Segment]) -> None:
        """Raise Interrupted if the log or any of `segments` changed during this compaction."""
        log = self._log
        if (
            log.is_closed
            or log.is_truncating
            or log.truncations != self._truncations
            or any(segment.file.doomed for segment in segments)
        ):
            raise Interrupted(f"{log.topic_partition} has changed")

    def _pin(self, segments: list[Segment]) -> None:
        self._check(segments)
        for segment in segments:
            self._log.directory.open_files.pin(segment.file)
            self._pinned.append(segment.file)

    def _unpin(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._pinned.remove(segment.file)
            self._log.directory.open_files.unpin(segment.file)

    async def _claim(self) -> None:
        """Write a recovery point to disk that lies at or beyond the end of the records to compact.

        Recovery accepts gaps left by compaction only below the recovery point on disk.
        """
        log, end = self._log, self._plan.first_uncleanable_offset
        await log.directory.checkpoint()
        self._check([])
        if log.directory.checkpoints[RECOVERY_POINTS].lowest(log.topic_partition) < end:
            raise Interrupted(f"the recovery point of {log.topic_partition} is not on disk")

    async def _build_map(self) -> None:
        log, plan = self._log, self._plan
        segments, bases = log.segments[:-1], list(log.base_offsets)
        for number, segment in enumerate(segments):
            ends = bases[number + 1]
            if ends <= plan.first_dirty_offset:
                continue
            if segment.base_offset >= plan.first_uncleanable_offset or self._map.is_full:
                break
            self._pin([segment])
            position = 0
            while 0 <= position < segment.size_bytes:
                self._check([segment])
                before = position
                position = await log.directory.lane.submit(
                    _MapSlice(
                        segment.file,
                        position,
                        segment.size_bytes,
                        plan.first_dirty_offset,
                        self._map,
                        self._slice_bytes,
                        log.config.max_decompressed_bytes,
                    ),
                    Work.SLOW,
                    "map keys",
                )
                await self._paced(position - before, 0)
            self._unpin([segment])
            if position < 0:
                break
            # The map also covers the offsets between the segment's last batch and the next segment.
            self._map.latest_offset = max(self._map.latest_offset, ends - 1)

    async def _groups(self, end_offset: int) -> list[list[Segment]]:
        log, plan = self._log, self._plan
        self._check([])
        end = min(end_offset, plan.first_uncleanable_offset)
        # Leave out the segments below the log start, because retention will soon remove them.
        first = max(bisect_right(log.base_offsets, log.log_start_offset) - 1, 0)
        segments = [s for s in log.segments[first:-1] if s.base_offset < end]
        self._pin(segments)
        survey = Survey(segments)
        await log.directory.lane.submit(survey, Work.SLOW, "look at indexes")
        self._unpin(segments)
        self._check(segments)
        return grouped(segments, log.config, survey.index_bytes, plan.first_uncleanable_offset)

    async def _paced(self, bytes_read: int, bytes_written: int) -> None:
        self.stats.bytes_read += max(bytes_read, 0)
        self.stats.bytes_written += bytes_written
        await self._pace(max(bytes_read, 0) + bytes_written)

    async def _clean(self, group: list[Segment], keep: BatchFilter) -> None:
        """Write the kept records of a group of segments to a segment that replaces the group."""
        log = self._log
        self._pin(group)
        segment = Segment(
            log.path, group[0].base_offset, max(segment.created_ms for segment in group)
        )
        segment.last_modified_ms = max(segment.last_modified_ms for segment in group)
        cleaned = _Cleaned(segment, segment.path(names.LOG) + names.CLEANED)
        try:
            for source in group:
                position = 0
                while position < source.size_bytes:
                    self._check(group)
                    before, size = position, segment.size_bytes
                    position = await log.directory.lane.submit(
                        _FilterSlice(
                            source.file,
                            position,
                            source.size_bytes,
                            cleaned,
                            keep,
                            self._slice_bytes,
                            log.config.index_interval_bytes,
                        ),
                        Work.SLOW,
                        "compact",
                    )
                    await self._paced(position - before, segment.size_bytes - size)
            self._check(group)
            await log.directory.lane.submit(
                lambda files: _finish(files, cleaned, group), Work.SLOW, "finish segment"
            )
            await self._swap(group, segment)
        except BaseException:
            self._give_up(cleaned)
            raise
        self._unpin(group)

    def _give_up(self, cleaned: _Cleaned) -> None:
        """Remove the new segment that a failed run left unfinished, because the disk may be full.

        If the log is closed, the unfinished segment stays until the broker's next start removes
        it.
        """
        log, segment = self._log, cleaned.segment
        if log.is_closed or log.directory.failure is not None:
            return

        def remove(files: Files) -> None:
            handle, cleaned.handle = cleaned.handle, None
            if handle is not None:
                files.close(handle)
            remove_cleaned(files, segment.directory, segment.base_offset)

        def removed(done: Completion[None]) -> None:
            if done.error is not None and not log.is_closed:
                log.directory.failed(done.error)

        log.directory.lane.submit(remove, Work.SLOW, "give up compaction").then(removed)

    def _swap(self, group: list[Segment], segment: Segment) -> Completion[None]:
        log = self._log
        completion: Completion[None] = Completion()
        bases = [old.base_offset for old in group]

        def start() -> None:
            try:
                self._check(group)
            except Interrupted as interrupted:
                log.end_turn()
                completion.fail(interrupted)
                return
            following = log.base_offsets[log.segments.index(group[-1]) + 1]
            assert following <= log.recovery_point, f"{log.path}: {following} was not flushed"
            snapshots = [s for s in log.snapshots if bases[0] < s < following]
            operation = SwapOperation(log.path, bases, snapshots)
            log.directory.lane.submit(operation, Work.SLOW, "swap segments").then(
                lambda done: swapped(operation, done)
            )

        def swapped(operation: SwapOperation, done: Completion[None]) -> None:
            if done.error is not None:
                if operation.committed:
                    log.break_off("a compaction could not be finished; the next start does")
                log.end_turn()
                log.directory.failed(done.error)
                completion.fail(done.error)
                return
            segment.sealed = True
            log.replaced(group, segment)
            log.directory.remove_later(operation.deleted, log.config.file_delete_delay_ms)
            log.end_turn()
            completion.resolve(None)

        log.take_turn(start, after_queue=False)
        return completion


def _finish(files: Files, cleaned: _Cleaned, group: list[Segment]) -> None:
    """Make the new segment and its indexes durable under their temporary names.

    The new file keeps the last write time of the old files, so that compaction makes no record
    younger. This function opens the old files before the swap renames them, because a reader could
    no longer open them by name. Raises OSError.
    """
    segment = cleaned.segment
    handle = cleaned.open(files)
    files.set_modified(cleaned.path, segment.last_modified_ms)
    files.fsync(handle)
    files.close(handle)
    cleaned.handle = None
    for path, data in index_files(segment):
        files.replace_file(path + names.CLEANED, data, sync=True)
    aborted = b"".join(
        files.read_file(path)
        for path in [old.path(names.TRANSACTION_INDEX) for old in group]
        if files.exists(path)
    )
    if aborted:
        path = segment.path(names.TRANSACTION_INDEX) + names.CLEANED
        files.replace_file(path, aborted, sync=True)
    for old in group:
        old.file.handle(files)


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The `log.cleaner.*` settings of a broker."""

    dedupe_buffer_bytes: int = 128 * MIB
    load_factor: float = 0.9
    #: Bytes that a compaction reads at a time; between two reads, other operations use the disk.
    slice_bytes: int = 256 * KIB
    #: Maximum number of bytes per second that the cleaner reads and writes in total.
    max_bytes_per_second: float = float("inf")


class Cleaner:
    """The cleaner of one broker's logs; all calls are on the event loop."""

    def __init__(
        self,
        settings: CleanerSettings,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`sleep` takes milliseconds."""
        #: The settings may be replaced at any time. A new rate applies at once; the other new
        #: settings apply when the cleaner begins the next log.
        self.settings = settings
        self._clock = clock
        self._sleep = sleep
        #: Monotonic time until which the rate limit delays the next read of a compaction.
        self._paid_ms = 0.0
        #: Logs in which a compaction found illegible batches, each with the number of the log's
        #: truncations at that time.
        self._uncleanable: dict[LogState, int] = {}

    async def clean_one(self, logs: Iterable[tuple[LogState, int]]) -> CleaningStats | None:
        """Compact the dirtiest of `logs`, which are pairs of a log and its high watermark.

        Returns None if no log is due for compaction, or if the chosen log changed during the run.
        Raises StorageError, which the log's directory has already handled.
        """
        best: tuple[LogState, CleanableLog] | None = None
        for log, high_watermark in list(logs):
            if not log.config.compact_enabled:
                continue
            if self._uncleanable.get(log) == log.truncations:
                continue
            if log.is_closed or log.is_truncating or log.directory.failure is not None:
                continue
            plan = await self._look(log, high_watermark)
            if plan.is_due(log.config) and (best is None or plan.dirty_ratio > best[1].dirty_ratio):
                best = log, plan
        return None if best is None else await self._clean(*best)

    async def _look(self, log: LogState, high_watermark: int) -> CleanableLog:
        if log.config.max_compaction_lag_ms < NEVER:
            await self._learn_ages(log)
        checkpoint = log.directory.cleaner_offset(log.topic_partition)
        return cleanable(
            log.segments,
            log.config,
            checkpoint,
            log.log_start_offset,
            log.log_end_offset,
            min(high_watermark, log.log_end_offset),
            log.recovery_point,
            self._clock.wall_ms(),
        )

    async def _learn_ages(self, log: LogState) -> None:
        """Read the first timestamps of segments that were loaded from the disk."""
        unknown = [s for s in log.segments[:-1] if s.first_timestamp_ms < 0 and s.size_bytes]
        if not unknown:
            return
        for segment in unknown:
            log.directory.open_files.pin(segment.file)
        survey = Survey(unknown)
        try:
            await log.directory.lane.submit(survey, Work.SLOW, "look at ages")
        except (StorageError, CorruptBatch):
            if not log.is_closed and not any(segment.file.doomed for segment in unknown):
                raise
        finally:
            for segment in unknown:
                log.directory.open_files.unpin(segment.file)
        for segment, timestamp_ms in survey.first_timestamps_ms.items():
            segment.first_timestamp_ms = timestamp_ms

    async def _clean(self, log: LogState, plan: CleanableLog) -> CleaningStats | None:
        settings, directory = self.settings, log.directory
        name = str(log.topic_partition)
        if plan.checkpoint_is_void:
            directory.log_note(
                logging.INFO,
                f"{name} is compacted from its start {plan.first_dirty_offset}: "
                f"{CLEANER_OFFSETS} says {directory.cleaner_offset(log.topic_partition)}",
                _LOGGER,
            )
        offset_map = OffsetMap(settings.dedupe_buffer_bytes, settings.load_factor)
        now_ms = self._clock.wall_ms()
        cleaning = Cleaning(log, plan, offset_map, now_ms, settings.slice_bytes, self._pace)
        try:
            stats = await cleaning.run()
        except Interrupted as interrupted:
            directory.tracer.event("log_cleaning_interrupted", partition=name)
            directory.log_note(logging.INFO, f"compaction: {interrupted}", _LOGGER)
            return None
        except CorruptBatch as error:
            self._uncleanable[log] = log.truncations
            directory.log_note(
                logging.ERROR, f"{name} is not compacted before it is truncated: {error}", _LOGGER
            )
            if not await find_damage(log) and log.truncations == self._uncleanable[log]:
                # All checksums are right, so the batch was already illegible when it was written.
                directory.damaged(log.topic_partition, log.path, error, is_located=False)
            return None
        except StorageError as error:
            directory.failed(error)
            raise
        directory.tracer.event(
            "log_cleaned", partition=name, end_offset=stats.end_offset, keys=stats.keys,
            bytes_read=stats.bytes_read, bytes_written=stats.bytes_written,
        )  # fmt: skip
        directory.log_note(
            logging.INFO,
            f"{name}: compacted up to offset {stats.end_offset}: {stats.keys:,} keys,"
            f" {stats.bytes_read:,} bytes read, {stats.bytes_written:,} written",
            _LOGGER,
        )
        return stats

    async def _pace(self, done_bytes: int) -> None:
        now_ms = self._clock.monotonic_ms()
        cost_ms = done_bytes * 1000 / self.settings.max_bytes_per_second
        self._paid_ms = max(self._paid_ms, now_ms) + cost_ms
        if self._paid_ms - now_ms >= 1:
            await self._sleep(self._paid_ms - now_ms)
