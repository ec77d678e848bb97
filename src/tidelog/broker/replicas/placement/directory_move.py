"""The move of one replica between log directories of this broker (D11, KIP-113).

`replication.directory_move` chooses the next step of the future replica, and this module executes
the step. A limited number of the broker's moves copy at the same time, and all moves share one
throttle (`move_pace`). When few records are left to copy, the broker syncs the copied records and
pauses appends to the current log. Then the broker copies the remaining records, and the future
replica replaces the current replica (`log.replacement`). The pause takes milliseconds on a good
disk. While the disk is full or the current replica is unreadable, the move waits. After `is_over`
is set, the move changes neither the current nor the future log, except that it finishes a
replacement in progress.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.broker.replicas.hosting.log_bytes import bytes_from
from tidelog.core.completion import Completion
from tidelog.core.errors import KafkaError, StorageError
from tidelog.log.config import NEVER, LogConfig
from tidelog.log.replacement import Replacement
from tidelog.replication.directory_move import LogExtent, Step, StepKind, next_step

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.replicas.placement.move_pace import MovePace
    from tidelog.broker.services import Services
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import PartitionLog

#: First pause in milliseconds after a refused read or append, doubled with each further failure.
_FIRST_PAUSE_MS: Final = 50
#: Longest pause in milliseconds after a refused read or append.
_LONGEST_PAUSE_MS: Final = 5_000
#: When at most this number of reads is left to copy, appends to the current log pause; these reads
#: take some milliseconds on any disk.
_TAIL_READS: Final = 4
#: In a move with a throttle, appends pause when at most this number of reads is left to copy. The
#: number is lower than `_TAIL_READS`, because the throttle does not delay the last reads.
_THROTTLED_TAIL_READS: Final = 1


def future_config(config: LogConfig) -> LogConfig:
    """Return the configuration of a future log, without retention and time-based flushes.

    The broker syncs the records of a future log before the log replaces the current log. Retention
    deletes a segment of the future log only after it has deleted the same records from the current
    log.
    """
    return replace(
        config,
        delete_enabled=False,
        flush_messages=NEVER,
        flush_ms=NEVER,
        flush_before_ack=False,
    )


class DirectoryMove:
    """The move of one replica to another log directory. Only the event loop uses this class."""

    def __init__(
        self,
        services: Services,
        pace: MovePace,
        partition: Partition,
        target: LogDirectory,
        future: PartitionLog,
        is_hosted: Callable[[Partition], bool],
        on_copied: Callable[[int], None],
        on_replaced: Callable[[DirectoryMove], None],
    ) -> None:
        """`is_hosted` returns whether this broker still hosts a replica.

        `on_copied` is called after each copied read, with its number of bytes. `on_replaced` gets
        this move after the future replica has replaced the current replica.
        """
        self._services = services
        self._pace = pace
        self._is_hosted = is_hosted
        self._on_copied = on_copied
        self._on_replaced = on_replaced
        self.partition = partition
        self.source = partition.directory
        self.target = target
        self.future = future
        #: Whether the move was replaced or cancelled, or cannot continue.
        self.is_over = False
        #: Resolved when a replacement in progress is done; ending the move waits for that.
        self.replacing: Completion[None] | None = None
        self._failures = 0
        self._config = future.config

    @property
    def lag(self) -> int:
        """Number of offsets by which the future replica is behind the current replica."""
        return self.partition.log.log_end_offset - self.future.log_end_offset

    @property
    def awaited_bytes(self) -> int:
        """Approximate number of bytes that are still to copy."""
        return max(0, self.partition.log.size_bytes - self.future.size_bytes)

    async def run(self) -> None:
        """Copy the records, then replace the current replica; return at the end of the move."""
        while not self.is_over:
            try:
                pause_ms = await self._step()
                if pause_ms == 0:
                    self._failures = 0
            except StorageError as error:
                pause_ms = self._refused(str(error))
            except KafkaError as error:
                pause_ms = self._refused(error.message)
            if pause_ms and not self.is_over:
                await self._services.tasks.sleep(pause_ms)

    def _refused(self, why: str) -> int:
        """Return how long to wait, in ms, after a log or a disk refused an operation."""
        pause_ms = min(_FIRST_PAUSE_MS << min(self._failures, 10), _LONGEST_PAUSE_MS)
        self._failures += 1
        if not self.is_over:
            self._services.tracer.log(
                "server",
                logging.INFO if self._failures == 1 else logging.WARNING,
                f"the move of {self.partition.topic_partition} to {self.target.path} waits"
                f" {pause_ms} ms: {why}",
            )
        return pause_ms

    def next_step(self) -> Step:
        """Return the step that brings the future replica closer to the current replica."""
        return next_step(_extent(self.partition.log), _extent(self.future))

    async def _step(self) -> int:
        """Execute the next step of the move; return how long to wait before the step after it, in
        ms.
        """
        self._configure()
        step = self.next_step()
        if step.kind is StepKind.RESTART:
            await self._restart(step.offset)
        elif step.kind is StepKind.TRUNCATE:
            self._services.tracer.mark("directory_move_truncated")
            await self.future.truncate_to(step.offset)
        elif self._is_near():
            return await self._finish()
        else:
            return await self._copy_in_turn()
        return 0

    def _configure(self) -> None:
        """Apply the topic's current configuration to the future log."""
        config = future_config(self.partition.log.config)
        if config != self._config:
            self._config = config
            self.future.configured(config)

    async def _restart(self, offset: int) -> None:
        """Empty the future log; let it begin at `offset` with the producer state up to `offset`."""
        self._services.tracer.mark("directory_move_restarted")
        await self.future.truncate_fully_and_start_at(offset)
        producers = self.partition.log.producers.before(offset)
        if not self.is_over and len(producers):
            self.future.producers = producers
            self.future.new_snapshots[offset] = producers.to_snapshot()

    # copying

    async def _copy_in_turn(self) -> int:
        wait_ms = self._pace.waits_ms()
        if wait_ms:
            return wait_ms
        await self._pace.turn()
        try:
            step = self.next_step()
            if self.is_over or step.kind is not StepKind.COPY:
                return 0
            await self._drop_deleted()
            return 0 if await self._copy(step.offset) else _FIRST_PAUSE_MS
        finally:
            self._pace.turn_over()

    async def _copy(self, offset: int) -> bool:
        """Copy some batches from `offset` on; return whether any batch was copied."""
        current, future = self.partition.log, self.future
        limit = self._services.config.replica_fetch_max_bytes
        part = await current.read(offset, limit, current.log_end_offset, min_one_batch=True)
        count = len(part.data)
        if self.is_over or not count:
            return False
        self._on_copied(count)
        appended = future.plan_follower_append(part.data)
        future.submit_planned()
        await appended
        return True

    async def _drop_deleted(self) -> None:
        """Advance the future log's start to the current log's start; remove older segments."""
        future = self.future
        start = min(self.partition.log.log_start_offset, future.log_end_offset)
        future.advance_log_start(start)
        if len(future.segments) > 1 and future.base_offsets[1] <= start:
            await future.enforce_retention(self._services.clock.wall_ms(), start)

    # how a move ends

    async def _finish(self) -> int:
        """Try to replace the current replica; return in how many ms the next step is due."""
        wait_ms = self._pace.waits_ms()
        if wait_ms:
            return wait_ms
        replacement = Replacement(self.source, self.target, self.partition.log, self.future)
        replacing = self.replacing = Completion()
        try:
            # Sync most of the copied records before appends to the current log pause.
            await replacement.prepare(self.partition.high_watermark)
            if self.is_over or not self._may_replace():
                return 0
            return await self._replace(replacement)
        finally:
            replacement.give_up()
            self.replacing = None
            replacing.resolve(None)

    def _may_replace(self) -> bool:
        kind = self.next_step().kind
        return kind is StepKind.CAUGHT_UP or (kind is StepKind.COPY and self._is_near())

    def _is_near(self) -> bool:
        left = bytes_from(self.partition.log, self.future.log_end_offset)
        reads = _THROTTLED_TAIL_READS if self._pace.is_throttled else _TAIL_READS
        return left <= reads * self._services.config.replica_fetch_max_bytes

    async def _replace(self, replacement: Replacement) -> int:
        await replacement.begin()
        while (step := self.next_step()).kind is StepKind.COPY:
            if self.is_over or not await self._copy(step.offset):
                return _FIRST_PAUSE_MS
        if self.is_over or step.kind is not StepKind.CAUGHT_UP:
            return 0
        await replacement.write_down()
        if self.is_over:
            return 0
        await replacement.rename()
        if not self._is_hosted(self.partition) or self.target.failure is not None:
            # A log directory of the move has failed, so its replicas are offline.
            self._services.tracer.event(
                "directory_move_undone", partition=str(self.partition.topic_partition)
            )
            await replacement.undo()
            return 0
        self.partition.relocated(self.target, replacement.switch())
        self.is_over = True
        self._on_replaced(self)
        replacement.go_on()
        return 0


def _extent(log: PartitionLog) -> LogExtent:
    return LogExtent(log.log_start_offset, log.log_end_offset, log.epochs)
