"""The state that all logs of one directory share: disk, open files, indexes, checkpoints.

One checkpoint file holds an offset of every log. Before a log is truncated, or a replica is
recreated under an old name, the directory lowers the partition's entries in the checkpoints on disk
(V34, V38). All calls are on the event loop. This module reads no state of the logs except the
offsets that checkpoints hold.
"""

from __future__ import annotations

import errno
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from tidelog.core.completion import Completion
from tidelog.core.errors import StorageError
from tidelog.core.ports import Clock, Files, Lane, Tracer, Work
from tidelog.core.types import TopicPartition
from tidelog.log import names
from tidelog.log.checkpoints import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
    all_of,
)
from tidelog.log.config import LogConfig
from tidelog.log.directory_disk import DirectoryDisk
from tidelog.log.directory_space import DirectorySpace
from tidelog.log.directory_speed import DirectorySpeed
from tidelog.log.index import DamagedIndex
from tidelog.log.loop_budget import LoopBudget
from tidelog.log.open_files import OpenFiles
from tidelog.log.segment import IndexCache, Segment
from tidelog.log.segment_files import read_indexes, rebuild_indexes
from tidelog.log.segment_reads import Recent
from tidelog.records.batch import CorruptBatch


class LogOffsets(ABC):
    """The offsets of a log that checkpoints hold."""

    __slots__ = ("base_offsets", "log_start_offset", "recovery_point")

    #: The first offset of each segment, oldest first; never empty.
    base_offsets: list[int]
    #: First offset of the log that may be read.
    log_start_offset: int
    #: Offset below which all records are on the disk.
    recovery_point: int

    @property
    @abstractmethod
    def may_regain_segments(self) -> bool:
        """Whether a power loss may bring back removed segments, because no sync of the directory
        has followed their removal.
        """


class DirectoryState(DirectoryDisk):
    """The state that the logs of one directory share; `LogDirectory` is built on it."""

    def __init__(
        self,
        lane: Lane,
        clock: Clock,
        tracer: Tracer,
        default_config: LogConfig,
        max_open_files: int,
        checkpointed_logs: Mapping[TopicPartition, LogOffsets],
        reserve_bytes: int = 0,
    ) -> None:
        """`checkpointed_logs` is a view of the directory's logs that is always current."""
        super().__init__(lane, clock, tracer)
        self.default_config = default_config
        self.open_files = OpenFiles(lane, max_open_files)
        self.indexes = IndexCache()
        #: The budget for checks of clients' batches on the event loop.
        self.loop_budget = LoopBudget(clock)
        #: A copy of the directory's last append in memory, for followers at the log end; or None.
        self.recent: Recent | None = None
        #: Number of further appends after each of which `recent` gets a copy of the append. A read
        #: that reaches a log end sets this number to `RECENT_APPENDS`.
        self.recent_wanted = 0
        #: The watch on free space: the directory is read-only while its disk is full.
        self.space = DirectorySpace(self, reserve_bytes)
        #: The watch on the directory's speed.
        self.speed = DirectorySpeed(self, self.space)
        #: Called for a log when its first damaged offset becomes known (`LogState.damage`).
        self.on_damage: Callable[[TopicPartition], None] | None = None
        #: Checkpoints of offsets, by file name.
        self.checkpoints = {
            name: OffsetCheckpoint(lane, f"{self.path}/{name}", {}, self.failed)
            for name in OFFSET_CHECKPOINTS
        }
        #: (recovery point, log start offset) of strays that are being restored. Checkpoints must
        #: contain both before the stray becomes a replica again.
        self.returning: dict[TopicPartition, tuple[int, int]] = {}
        #: Future replicas in this directory; the current replicas of their partitions are in other
        #: directories (D11).
        self.futures: dict[TopicPartition, LogOffsets] = {}
        self._checkpointed_logs = checkpointed_logs
        self._loading_index: dict[Segment, Completion[None]] = {}

    # checkpoints

    def checkpoint(self) -> Completion[None]:
        """Write recovery points and log start offsets.

        A log whose start is the first offset of its files needs no entry for the log start. But an
        entry that the checkpoint has already stays until the removal of older segments is durable.
        Without the entry, a power loss could bring back records that were deleted before (V34).
        """
        written = self.checkpoints[LOG_START_OFFSETS].offsets
        logs = self._checkpointed_logs
        if self.futures:
            logs = {**self.futures, **logs}
        points = {key: log.recovery_point for key, log in logs.items()}
        starts = {
            key: log.log_start_offset
            for key, log in logs.items()
            if log.log_start_offset > log.base_offsets[0]
            or (key in written and log.may_regain_segments)
        }
        for key, (recovery_point, log_start_offset) in self.returning.items():
            points[key], starts[key] = recovery_point, log_start_offset
        return all_of(
            [
                self._write(self.checkpoints[RECOVERY_POINTS], points),
                self._write(self.checkpoints[LOG_START_OFFSETS], starts),
            ]
        )

    def cleaner_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the end offset of the last compaction of a log, or None before the first one."""
        return self.checkpoints[CLEANER_OFFSETS].offsets.get(topic_partition)

    def compacted(self, topic_partition: TopicPartition, offset: int) -> Completion[None]:
        """Record on disk that a log is compacted up to `offset`."""
        checkpoint = self.checkpoints[CLEANER_OFFSETS]
        logs = self._checkpointed_logs
        # Compacted records must have been flushed, because recovery relies on this.
        flushed = logs[topic_partition].recovery_point
        assert offset <= flushed, f"{topic_partition}: {offset} compacted, {flushed} flushed"
        offsets = {key: value for key, value in checkpoint.offsets.items() if key in logs}
        offsets[topic_partition] = offset
        return self._write(checkpoint, offsets)

    def _write(
        self,
        checkpoint: OffsetCheckpoint,
        offsets: dict[TopicPartition, int],
        *,
        even_unchanged: bool = False,
    ) -> Completion[None]:
        if self.failure is not None:
            return Completion.failed(self.failure)
        if offsets == checkpoint.offsets and not even_unchanged:
            return checkpoint.newest_write()
        return checkpoint.write(offsets)

    def lower(self, topic_partition: TopicPartition, offset: int) -> Completion[None]:
        """Lower a partition's entry in all checkpoints on disk to `offset`; -1 removes the entry.

        The caller must lower the checkpoint entries before a log is truncated to `offset`, or
        before a replica is recreated under an old name.
        """
        return all_of(
            [checkpoint.lower(topic_partition, offset) for checkpoint in self.checkpoints.values()]
        )

    # files and indexes

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files and directories after a delay; the next start removes any that remain."""
        gone = list(paths)

        def remove(files: Files) -> None:
            for path in gone:
                if path.endswith(names.DELETE_SUFFIX):
                    files.remove_tree(path)
                elif files.exists(path):
                    files.unlink(path)

        def removed(done: Completion[None]) -> None:
            if done.error is not None:
                self.failed(done.error)
            else:
                self.space.freed()

        def due() -> None:
            if not self.is_closed and self.failure is None:
                self.lane.submit(remove, Work.SLOW, "remove").then(removed)

        if gone:
            self.clock.call_later(delay_ms, due)

    def with_index(self, segment: Segment) -> Completion[None]:
        """Load the indexes of a segment from its files, unless they are in memory."""
        if segment.index is not None:
            if segment.sealed:
                self.indexes.used(segment)
            return Completion.of(None)
        loading = self._loading_index.get(segment)
        if loading is not None:
            return loading
        completion: Completion[None] = Completion()
        self._loading_index[segment] = completion
        scratch = Segment(segment.directory, segment.base_offset, segment.created_ms)
        scratch.size_bytes = segment.size_bytes
        interval = self.default_config.index_interval_bytes

        def read(files: Files) -> str:
            try:
                read_indexes(files, scratch)
            except DamagedIndex as error:
                rebuild_indexes(files, scratch, interval)
                return f"the index of {scratch.file.path} was rebuilt in memory: {error}"
            return ""

        def done(finished: Completion[str]) -> None:
            del self._loading_index[segment]
            if finished.error is not None:
                completion.fail(finished.error)
                return
            if finished.result():
                self.log_note(logging.WARNING, finished.result())
            if not segment.file.doomed:
                # If the segment was removed, discard the loaded indexes: the files may already
                # belong to the compacted segment that replaced it.
                segment.index, segment.time_index = scratch.index, scratch.time_index
                if segment.sealed:
                    self.indexes.used(segment)
            completion.resolve(None)

        self.lane.submit(read, Work.SLOW, "read index").then(done)
        return completion

    # damage

    def damaged(
        self, topic_partition: TopicPartition, path: str, error: CorruptBatch, *, is_located: bool
    ) -> None:
        """Report a file whose content differs from the written bytes; the file is not changed.

        If `is_located`, the log knows its first damaged offset, so that the broker can repair the
        log (V68).
        """
        self.tracer.event("log_corrupt", partition=str(topic_partition), path=path)
        self.log_note(logging.ERROR, f"{path}: {error}")
        self.tracer.mark("damage_read")
        if is_located and self.failure is None and self.on_damage is not None:
            self.on_damage(topic_partition)

    def index_rebuilt(self, path: str, error: CorruptBatch) -> None:
        """Log that an index was rebuilt: the batches are undamaged, but the index had wrong
        positions.
        """
        self.tracer.event("index_rebuilt", path=path)
        self.log_note(logging.WARNING, f"the index of {path} was damaged and is rebuilt: {error}")

    def begin_again_at(self, topic_partition: TopicPartition, offset: int, why: str) -> None:
        """Fail the directory, because one of its logs is damaged from `offset` on.

        A running broker cannot repair the damaged log, so the broker stops, and other replicas lead
        the partition. This method lowers the checkpoints to `offset`, so that recovery at the next
        start truncates the log to `offset`. When the broker has restarted as a follower, it
        refetches the truncated records (V68).
        """
        self.failure = error = StorageError(
            self.path, "read", f"{self.path}/{names.directory_name(topic_partition)}",
            errno.EBADMSG, self.clock.wall_ms(),
            f"{why}. Other replicas have the records: at the next start the log is truncated at "
            f"offset {offset} and refetched",
        )  # fmt: skip
        self.log_note(logging.ERROR, str(error))

        def lowered(_: Completion[None]) -> None:
            if self.on_failure is not None:
                self.on_failure(error)

        self.lower(topic_partition, offset).then(lowered)
