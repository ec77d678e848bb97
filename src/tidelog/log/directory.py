"""One log directory on its lane: its partitions' logs, checkpoints, deletions, strays, failure.

Opens whatever a clean or unclean end left behind, makes and removes replicas, writes the
checkpoints of all of them, and closes with the marker that lets the next start skip recovery.
The first device error, or any failed fsync, fails the directory for good and is told once through
`on_failure` (D1, D17); a full disk fails only the operation that met it.
Rules V34, V35 and V45 (setting aside), V38, V39, D1, D17, E3 (the marker).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from tidelog.core.completion import Completion
from tidelog.core.errors import StorageError
from tidelog.core.ports import Clock, Files, Lane, Tracer, Work
from tidelog.core.types import TopicId, TopicPartition
from tidelog.log import names
from tidelog.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
    after_all,
)
from tidelog.log.closing import close_logs
from tidelog.log.config import LogConfig
from tidelog.log.directory_files import (
    CLEAN_SHUTDOWN,
    format_clean_shutdown,
)
from tidelog.log.index import DamagedIndex
from tidelog.log.loop_budget import LoopBudget
from tidelog.log.open_files import DEFAULT_MAX_OPEN_FILES, OpenFiles
from tidelog.log.opening import LearnConfigs, LoadedPartition, Opened, open_directory
from tidelog.log.partition_log import PartitionLog
from tidelog.log.reading import Recent
from tidelog.log.replica_directories import ReplicaDirectories
from tidelog.log.segment import IndexCache, Segment
from tidelog.log.segment_files import read_indexes, rebuild_indexes
from tidelog.log.stray_replicas import Stray, Strays
from tidelog.records.batch import CorruptBatch

_LOGGER = "log"


__all__ = ["LogDirectory", "Stray"]


class LogDirectory:
    """Everything in one log directory. Loop only."""

    def __init__(
        self,
        lane: Lane,
        clock: Clock,
        tracer: Tracer,
        default_config: LogConfig,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
    ) -> None:
        self.lane = lane
        self.path = lane.directory
        self.clock = clock
        self.tracer = tracer
        self.default_config = default_config
        self.open_files = OpenFiles(lane, max_open_files)
        self.indexes = IndexCache()
        #: What checks of clients' batches may cost the loop.
        self.loop_budget = LoopBudget(clock)
        self.recent: Recent | None = None
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: Partitions that were set aside.
        self.stray_replicas = Strays(self)
        #: High watermarks as they were loaded, none above its log's end.
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: Broker epoch of the clean shutdown before this start, None without one (E3).
        self.clean_shutdown_epoch: int | None = None
        #: What failed the directory; nothing is written after it.
        self.failure: StorageError | None = None
        #: Told once when the directory fails.
        self.on_failure: Callable[[StorageError], None] | None = None
        #: Told of a log that is damaged, the offset from which on, and what is wrong.
        self.on_damage: Callable[[TopicPartition, int, str], None] | None = None
        #: By file name.
        self.checkpoints = {
            name: OffsetCheckpoint(lane, f"{self.path}/{name}", {}, self.failed)
            for name in OFFSET_CHECKPOINTS
        }
        self._replicas = ReplicaDirectories(self)
        self._loading_index: dict[Segment, Completion[None]] = {}

    # opening

    @classmethod
    async def open(
        cls,
        lane: Lane,
        *,
        cluster_id: str,
        broker_id: int,
        clock: Clock,
        tracer: Tracer,
        default_config: LogConfig,
        config_of: Callable[[str], LogConfig],
        learn_configs: LearnConfigs | None = None,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
    ) -> LogDirectory:
        """Open the lane's directory, made if it is not there; recover after an unclean end.

        `learn_configs` is told the topics that are here before `config_of` is asked: recovery must
        know which of them are compacted.

        Raises ConfigError when it belongs to another cluster or broker or cannot be used, and
        StorageError when the disk fails.
        """
        directory = cls(lane, clock, tracer, default_config, max_open_files)
        opened = await open_directory(
            lane, clock, cluster_id, broker_id, config_of, learn_configs, directory.log_note
        )
        await directory._take(opened, config_of)
        return directory

    async def _take(self, opened: Opened, config_of: Callable[[str], LogConfig]) -> None:
        self.clean_shutdown_epoch = opened.clean_shutdown_epoch
        for name, offsets in opened.checkpoints.items():
            self.checkpoints[name].offsets = offsets
        for loaded in opened.partitions:
            self.add_loaded(loaded, config_of(loaded.topic_partition.topic))
        self.stray_replicas.opened(opened.held)
        for name in opened.aside:
            self._replicas.take_aside(name, self.clock.wall_ms())
        marks = self.checkpoints[HIGH_WATERMARKS].offsets
        self.high_watermarks = {
            key: max(min(marks[key], log.log_end_offset), log.log_start_offset)
            for key, log in self.logs.items()
            if key in marks
        }
        if not opened.was_clean:
            # What the disk claims must not outlive the records that were lost (V38).
            await self.checkpoints[HIGH_WATERMARKS].write(self.high_watermarks)
        if not opened.was_clean or any(
            self.checkpoints[RECOVERY_POINTS].offsets.get(key) != log.recovery_point
            for key, log in self.logs.items()
        ):
            # Recovery points that are not on disk are none: after a crash, gaps that compaction
            # left would be taken for lost records, and what is behind them would go.
            await self.checkpoint()
        self.tracer.event(
            "log_directory_opened", directory=self.path, partitions=len(self.logs),
            clean=opened.was_clean,
        )  # fmt: skip

    def add_loaded(self, partition: LoadedPartition, config: LogConfig) -> PartitionLog:
        """Have the log of a partition that was loaded."""
        loaded = partition.loaded
        log = PartitionLog(
            self,
            partition.topic_partition,
            loaded.topic_id,
            config,
            loaded.segments,
            loaded.log_start_offset,
            loaded.log_end_offset,
            loaded.recovery_point,
            loaded.epochs,
            loaded.producers,
        )
        log.snapshots = loaded.snapshots
        log.names_changed = loaded.names_changed
        if loaded.is_sealed:
            log.closed_state = (0, loaded.log_end_offset)
        for segment in loaded.segments[:-1]:
            self.indexes.used(segment)
        self.logs[partition.topic_partition] = log
        if loaded.cut_bytes:
            self.tracer.mark("log_cut_at_start")
            self.tracer.event(
                "log_recovered", partition=str(partition.topic_partition),
                end_offset=loaded.log_end_offset, cut_bytes=loaded.cut_bytes,
            )  # fmt: skip
        return log

    # replicas

    @property
    def strays(self) -> Mapping[str, Stray]:
        """Set-aside partitions by directory name."""
        return self.stray_replicas.found

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig
    ) -> Completion[PartitionLog]:
        """Make an empty replica; see `create_many`."""
        completion: Completion[PartitionLog] = Completion()

        def created(done: Completion[list[PartitionLog]]) -> None:
            if done.error is not None:
                completion.fail(done.error)
            else:
                completion.resolve(done.result()[0])

        self.create_many([(topic_partition, topic_id, config)]).then(created)
        return completion

    def create_many(
        self, replicas: Sequence[tuple[TopicPartition, TopicId, LogConfig]]
    ) -> Completion[list[PartitionLog]]:
        """Make empty replicas; their names are durable with one directory sync when it is done.

        Raises KafkaError for a name that V24 forbids, ValueError for a replica that is here.
        The completion's error is a StorageError.
        """
        return self._replicas.create_many(replicas)

    def delete(self, topic_partition: TopicPartition) -> Completion[None]:
        """Rename the replica's directory now, remove it after `file.delete.delay.ms` (V34)."""
        delay_ms = self.logs[topic_partition].config.file_delete_delay_ms
        return self._replicas.leave(topic_partition, names.DELETE_SUFFIX, delay_ms)

    def set_aside(
        self, topic_partition: TopicPartition, high_watermark: int = 0
    ) -> Completion[None]:
        """Move the replica aside as stray: kept, listed, no longer served (V35, V45)."""
        return self._replicas.leave(topic_partition, names.STRAY_SUFFIX, None, high_watermark)

    def purge_strays(self, now_ms: int, delay_ms: int) -> Completion[int]:
        """Remove strays that were set aside `delay_ms` ago or longer and wait for no word; returns
        how many."""
        return self.stray_replicas.purge(now_ms, delay_ms)

    def hold_strays(self, held: Iterable[str]) -> Completion[None]:
        """Keep these strays until an operator removes or restores them (V35)."""
        return self.stray_replicas.hold(held)

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files and directories after a while; what is left at the end goes at the start."""
        self._replicas.remove_later(paths, delay_ms)

    # checkpoints and indexes

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> Completion[None]:
        """Write the high watermarks of all replicas here; one not named keeps its last (V34)."""
        checkpoint = self.checkpoints[HIGH_WATERMARKS]
        new: dict[TopicPartition, int] = {}
        for key, log in self.logs.items():
            offset = offsets.get(key, checkpoint.offsets.get(key))
            if offset is not None:
                end = log.log_end_offset if log.pending_cut is None else log.pending_cut
                new[key] = min(offset, end)
        return self._write(checkpoint, new)

    def checkpoint(self) -> Completion[None]:
        """Write recovery points and log start offsets down."""
        points = {key: log.recovery_point for key, log in self.logs.items()}
        starts = {
            key: log.log_start_offset
            for key, log in self.logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        for key, (recovery_point, log_start_offset) in self.stray_replicas.returning.items():
            points[key], starts[key] = recovery_point, log_start_offset
        completion: Completion[None] = Completion()
        writes = [
            self._write(self.checkpoints[RECOVERY_POINTS], points),
            self._write(self.checkpoints[LOG_START_OFFSETS], starts),
        ]
        after_all(writes, lambda error: _settle(completion, error))
        return completion

    def cleaner_offset(self, topic_partition: TopicPartition) -> int | None:
        """Where the last compaction of a log ended, None before the first."""
        return self.checkpoints[CLEANER_OFFSETS].offsets.get(topic_partition)

    def compacted(self, topic_partition: TopicPartition, offset: int) -> Completion[None]:
        """A log is compacted up to `offset`: write it down."""
        checkpoint = self.checkpoints[CLEANER_OFFSETS]
        offsets = {key: value for key, value in checkpoint.offsets.items() if key in self.logs}
        offsets[topic_partition] = offset
        return self._write(checkpoint, offsets)

    def _write(
        self, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]
    ) -> Completion[None]:
        if self.failure is not None:
            return Completion.failed(self.failure)
        if offsets == checkpoint.offsets:
            return Completion.of(None)
        return checkpoint.write(offsets)

    def lower(self, topic_partition: TopicPartition, offset: int) -> Completion[None]:
        """Before a log is cut at `offset`: let no checkpoint on disk claim anything beyond it."""
        completion: Completion[None] = Completion()
        writes = [
            checkpoint.lower(topic_partition, offset) for checkpoint in self.checkpoints.values()
        ]
        after_all(writes, lambda error: _settle(completion, error))
        return completion

    def flush_due(self, now_ms: int) -> Completion[None]:
        """Flush logs whose unflushed records are older than their topic's flush.ms."""
        due = [
            log.flush()
            for log in self.logs.values()
            if log.log_end_offset > log.recovery_point
            and now_ms - log.oldest_unflushed_ms >= log.config.flush_ms
        ]
        completion: Completion[None] = Completion()
        after_all(due, lambda error: _settle(completion, error))
        return completion

    def with_index(self, segment: Segment) -> Completion[None]:
        """Done when the indexes of a segment are in memory; read from its files if they are not."""
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
                # Else the files read may be those of the segment that took its place.
                segment.index, segment.time_index = scratch.index, scratch.time_index
                if segment.sealed:
                    self.indexes.used(segment)
            completion.resolve(None)

        self.lane.submit(read, Work.SLOW, "read index").then(done)
        return completion

    # failure and notes

    def failed(self, error: BaseException) -> None:
        """Judge a failed operation: a device error fails the directory, once (D1, D17).

        Anything but a StorageError is a defect of this program and raised.
        """
        if not isinstance(error, StorageError):
            raise error
        if not error.is_device_failure:
            self.log_note(logging.WARNING, str(error))
            return
        if self.failure is None:
            self.failure = error
            self.log_note(logging.ERROR, str(error))
            self.tracer.event(
                "log_directory_failed", directory=self.path, operation=error.operation,
                error=errno.errorcode.get(error.errno, str(error.errno)),
            )  # fmt: skip
            if self.on_failure is not None:
                self.on_failure(error)

    def damaged(
        self, topic_partition: TopicPartition, path: str, error: CorruptBatch, offset: int | None
    ) -> None:
        """A file does not hold what was written to it, from `offset` on (None: from somewhere
        on): say so; the data stays as it is, unless others have it (`begin_again_at`)."""
        self.tracer.event("log_corrupt", partition=str(topic_partition), path=path)
        self.log_note(logging.ERROR, f"{path}: {error}")
        self.tracer.mark("damage_read")
        if offset is not None and self.failure is None and self.on_damage is not None:
            self.on_damage(topic_partition, offset, f"{path}: {error}")

    def index_rebuilt(self, path: str, error: CorruptBatch) -> None:
        """The batches of a segment are right, and its index pointed beside them."""
        self.tracer.event("index_rebuilt", path=path)
        self.log_note(logging.WARNING, f"the index of {path} was damaged and is rebuilt: {error}")

    def begin_again_at(self, topic_partition: TopicPartition, offset: int, why: str) -> None:
        """A log is damaged from `offset` on, and others have what it held: fail the directory, so
        that its broker ends and others lead. The next start finds that nothing from there on was
        ever flushed, cuts the log there, and has it fetched anew (V68)."""
        self.failure = error = StorageError(
            self.path, "read", f"{self.path}/{names.directory_name(topic_partition)}",
            errno.EBADMSG, self.clock.wall_ms(),
            f"{why}. Others have the records: at the next start the log is cut at offset {offset} "
            "and fetched anew",
        )  # fmt: skip
        self.log_note(logging.ERROR, str(error))

        def lowered(_: Completion[None]) -> None:
            if self.on_failure is not None:
                self.on_failure(error)

        self.lower(topic_partition, offset).then(lowered)

    def log_note(self, level: int, text: str) -> None:
        """A line for people."""
        self.tracer.log(_LOGGER, level, text)

    # closing

    async def close(self, *, broker_epoch: int) -> None:
        """Write everything down, last of all the marker of a clean shutdown (E3); end the lane.

        Raises StorageError, and leaves no marker, where anything could not be written.
        """
        self._replicas.closed = True
        try:
            if self.failure is not None:
                raise self.failure
            await close_logs(list(self.logs.values()))
            await self.checkpoint()
            marker, path = format_clean_shutdown(broker_epoch), f"{self.path}/{CLEAN_SHUTDOWN}"
            await self.lane.submit(
                lambda files: files.replace_file(path, marker, sync=True), Work.SLOW, "clean marker"
            )
        finally:
            for log in self.logs.values():
                log.forget_files()
            await self.lane.close()


def _settle(completion: Completion[None], error: BaseException | None) -> None:
    if error is not None:
        completion.fail(error)
    else:
        completion.resolve(None)
