"""The cleaner of a broker: which of its logs is compacted next, and how fast.

One log at a time, the dirtiest of those that are due; a log whose batches cannot be read is said so
once and left alone from then on. What is read and written is kept below a rate. Source: LogCleaner,
LogCleanerManager.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.core.errors import StorageError
from tidelog.core.limits import KIB, MIB
from tidelog.core.ports import Clock, Work
from tidelog.log.checkpoints import CLEANER_OFFSETS
from tidelog.log.cleaning import Cleaning, CleaningStats, Interrupted, Survey
from tidelog.log.compaction import CleanableLog, cleanable
from tidelog.log.config import NEVER
from tidelog.log.offset_map import OffsetMap
from tidelog.records.batch import CorruptBatch

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """What a broker's configuration says of its cleaner (`log.cleaner.*`)."""

    dedupe_buffer_bytes: int = 128 * MIB
    load_factor: float = 0.9
    #: Read at once, between two looks at what else the disk is wanted for.
    slice_bytes: int = 256 * KIB
    #: Read and written together.
    max_bytes_per_second: float = float("inf")


class Cleaner:
    """Compacts the logs of one broker. Loop only."""

    def __init__(
        self,
        settings: CleanerSettings,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`sleep` takes milliseconds."""
        #: May be replaced at any time: the rate counts at once, the rest for the next log.
        self.settings = settings
        self._clock = clock
        self._sleep = sleep
        #: When what was read and written so far is paid for, monotonic.
        self._paid_ms = 0.0
        #: Logs that cannot be read.
        self._uncleanable: dict[PartitionLog, None] = {}

    async def clean_one(self, logs: Iterable[tuple[PartitionLog, int]]) -> CleaningStats | None:
        """Compact the dirtiest of `logs`, each with its high watermark; None where none is due, or
        where it changed meanwhile. Raises StorageError, which the log's directory has judged."""
        best: tuple[PartitionLog, CleanableLog] | None = None
        for log, high_watermark in list(logs):
            if not log.config.compact_enabled or log in self._uncleanable:
                continue
            if log.is_closed or log.is_truncating or log.directory.failure is not None:
                continue
            plan = await self._look(log, high_watermark)
            if plan.is_due(log.config) and (best is None or plan.dirty_ratio > best[1].dirty_ratio):
                best = log, plan
        return None if best is None else await self._clean(*best)

    async def _look(self, log: PartitionLog, high_watermark: int) -> CleanableLog:
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

    async def _learn_ages(self, log: PartitionLog) -> None:
        """Read when the records of segments begin that were loaded from the disk."""
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

    async def _clean(self, log: PartitionLog, plan: CleanableLog) -> CleaningStats | None:
        settings, directory = self.settings, log.directory
        name = str(log.topic_partition)
        if plan.checkpoint_is_void:
            directory.log_note(
                logging.INFO,
                f"{name} is compacted from its start {plan.first_dirty_offset}: "
                f"{CLEANER_OFFSETS} says {directory.cleaner_offset(log.topic_partition)}",
            )
        offset_map = OffsetMap(settings.dedupe_buffer_bytes, settings.load_factor)
        now_ms = self._clock.wall_ms()
        cleaning = Cleaning(log, plan, offset_map, now_ms, settings.slice_bytes, self._pace)
        try:
            stats = await cleaning.run()
        except Interrupted as interrupted:
            directory.tracer.event("log_cleaning_interrupted", partition=name)
            directory.log_note(logging.INFO, f"compaction: {interrupted}")
            return None
        except CorruptBatch as error:
            self._uncleanable[log] = None
            directory.damaged(log.topic_partition, log.path, error, None)
            directory.log_note(logging.ERROR, f"{name} is not compacted any more: {error}")
            return None
        except StorageError as error:
            directory.failed(error)
            raise
        directory.tracer.event(
            "log_cleaned", partition=name, end_offset=stats.end_offset, keys=stats.keys,
            bytes_read=stats.bytes_read, bytes_written=stats.bytes_written,
        )  # fmt: skip
        return stats

    async def _pace(self, done_bytes: int) -> None:
        now_ms = self._clock.monotonic_ms()
        cost_ms = done_bytes * 1000 / self.settings.max_bytes_per_second
        self._paid_ms = max(self._paid_ms, now_ms) + cost_ms
        if self._paid_ms - now_ms >= 1:
            await self._sleep(self._paid_ms - now_ms)
