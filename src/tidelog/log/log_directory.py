"""One log directory: its opening and closing, and the creation and removal of its replicas.

The broker refuses a directory of another cluster or broker. If the directory has the clean-shutdown
marker, its files are trusted; otherwise, each partition is recovered (`recovery`). The
clean-shutdown marker is removed durably before the first write to a log, so that a later crash is
an unclean shutdown (E3). An illegible checkpoint counts as empty, so that recovery begins at the
start of each log.

A clean shutdown waits for the operations of each log and removes the bytes of failed writes. For
each changed log, the shutdown writes the last segment's indexes and a producer snapshot. The
shutdown syncs the volume only once, because syncs of each file would take minutes with thousands of
logs. The clean-shutdown marker is written last. This module follows the rules V34, V35 and V45
(strays), V38, V39 and E3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field

from tidelog.core.completion import Completion
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError, StorageError
from tidelog.core.ports import Clock, Files, Lane, Tracer, Work
from tidelog.core.types import ZERO_TOPIC_ID, CleanEpochs, TopicId, TopicPartition
from tidelog.log import known_log_dirs, names, new_replicas
from tidelog.log.append_queue import remove_failed_write
from tidelog.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    DamagedCheckpoint,
    all_of,
    parse_offsets,
)
from tidelog.log.config import LogConfig
from tidelog.log.directory_files import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    Replacement,
    format_clean_shutdown,
    format_meta_properties,
    parse_clean_shutdown,
    parse_meta_properties,
    put_in_place,
    replace_all,
)
from tidelog.log.directory_state import DirectoryState
from tidelog.log.future_logs import FoundFuture, FutureLogs, load_futures
from tidelog.log.moved_from import MovedFrom
from tidelog.log.open_files import DEFAULT_MAX_OPEN_FILES
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery import (
    LoadedLog,
    LoadRequest,
    load,
)
from tidelog.log.recovery_walk import DamagedLog
from tidelog.log.replica_directories import ReplicaDirectories
from tidelog.log.segment_files import index_files
from tidelog.log.stray_replicas import Stray, StrayReplicas

__all__ = ["LogDirectory", "Stray"]

#: Number of partitions that one file operation loads: large enough for few operations, small enough
#: for short operations.
_PARTITIONS_PER_OPERATION = 32
#: Files of a log directory in addition to the directories of replicas.
KNOWN_FILES = (
    *OFFSET_CHECKPOINTS,
    META_PROPERTIES,
    CLEAN_SHUTDOWN,
    names.HELD_STRAYS,
    names.NEW_REPLICAS,
    known_log_dirs.NAME,
    ".lock",
    "lost+found",
)
Note = Callable[[int, str], None]
#: A function that loads the configuration of the topics with the given names.
LearnConfigs = Callable[[Iterable[str]], Awaitable[None]]


@dataclass(slots=True)
class Opened:
    """The content of a log directory, as found when the broker opened it."""

    #: Whether the directory is new: no broker has opened it before, and it has no partition.
    is_new: bool = False
    was_clean: bool = False
    clean_shutdown: CleanEpochs | None = None
    checkpoints: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    partitions: list[tuple[TopicPartition, LoadedLog]] = field(default_factory=list)
    #: Names of renamed replica directories: deleted replicas, strays, moved replicas.
    aside: list[str] = field(default_factory=list)
    #: Names of the strays that wait for an operator's decision (V35).
    held: list[str] = field(default_factory=list)
    #: Names of the directories of future replicas. `futures` are the recovered future replicas, and
    #: `useless` the names of future replicas to remove.
    future_names: list[str] = field(default_factory=list)
    futures: list[FoundFuture] = field(default_factory=list)
    useless: list[str] = field(default_factory=list)
    #: Topic ids of replicas that an earlier process created, from the file of new replicas.
    new_replicas: dict[TopicPartition, TopicId] = field(default_factory=dict)
    #: Whether the broker has had several log directories (D6).
    is_one_of_several: bool = False
    notes: list[tuple[int, str]] = field(default_factory=list)
    found: list[TopicPartition] = field(default_factory=list)


async def open_directory(
    lane: Lane,
    clock: Clock,
    cluster_id: str,
    broker_id: int,
    config_of: Callable[[str], LogConfig],
    learn_configs: LearnConfigs | None,
    note: Note,
) -> Opened:
    """Open a log directory; see LogDirectory.open. Raises ConfigError, StorageError."""
    root = lane.directory
    opened = await lane.submit(
        lambda files: _look(files, root, cluster_id, broker_id), Work.SLOW, "open directory"
    )
    for level, text in opened.notes:
        note(level, text)
    started_ms = clock.monotonic_ms()
    futures = {name: names.future_partition(name) for name in opened.future_names}
    all_found = [*opened.found, *(each for each in futures.values() if each is not None)]
    if learn_configs is not None and all_found:
        await learn_configs(dict.fromkeys(found.topic for found in all_found))
    requests = [
        (
            topic_partition,
            _request(
                root, names.directory_name(topic_partition), opened, topic_partition, config_of,
                clock,
            ),
        )
        for topic_partition in opened.found
    ]  # fmt: skip
    for start in range(0, len(requests), _PARTITIONS_PER_OPERATION):
        part = requests[start : start + _PARTITIONS_PER_OPERATION]
        partitions = await _load(lane, root, part)
        for _, loaded in partitions:
            for is_warning, text in loaded.notes:
                note(logging.WARNING if is_warning else logging.INFO, text)
        opened.partitions += [part for part in partitions if not part[1].is_unfinished]
    if futures:
        await _load_futures(lane, opened, futures, config_of, clock, note)
    if opened.clean_shutdown is not None and any(
        loaded.is_topic_unknown for _, loaded in opened.partitions
    ):
        # A replica whose topic id is lost counts as lost, so the directory no longer proves a clean
        # shutdown (E3).
        opened.clean_shutdown = None
        note(
            logging.WARNING,
            f"{root}/{CLEAN_SHUTDOWN} is not believed: a partition's topic is unknown",
        )
    loaded_logs = [loaded for _, loaded in opened.partitions]
    loaded_logs += [future.loaded for future in opened.futures]
    if loaded_logs and not opened.was_clean:
        # Make the recovered logs durable, because from now on they count as flushed. One sync
        # covers all recovered logs; thousands of syncs would take minutes.
        await put_in_place(lane, [path for loaded in loaded_logs for path in loaded.beside])
    await lane.submit(lambda files: _begin(files, root, loaded=True), Work.SLOW, "begin")
    if opened.is_new:
        note(logging.INFO, f"{root}: a new log directory, with no partitions yet")
    else:
        note(
            logging.INFO,
            f"{root}: {len(opened.partitions)} partitions loaded in "
            f"{clock.monotonic_ms() - started_ms} ms after "
            f"{'a clean' if opened.was_clean else 'an unclean'} shutdown",
        )
    return opened


async def _load_futures(
    lane: Lane,
    opened: Opened,
    futures: Mapping[str, TopicPartition | None],
    config_of: Callable[[str], LogConfig],
    clock: Clock,
    note: Note,
) -> None:
    """Recover the future replicas of a directory.

    A future replica is useless if this directory also has the current replica of its partition.
    """
    present = dict.fromkeys(key for key, _ in opened.partitions)
    wanted = {
        name: _request(lane.directory, name, opened, key, config_of, clock)
        for name, key in futures.items()
        if key is not None and key not in present
    }
    opened.futures, opened.useless = await load_futures(lane, wanted, note)
    opened.useless += [name for name in futures if name not in wanted]


def _request(
    root: str,
    name: str,
    opened: Opened,
    topic_partition: TopicPartition,
    config_of: Callable[[str], LogConfig],
    clock: Clock,
) -> LoadRequest:
    config = config_of(topic_partition.topic)
    return LoadRequest(
        path=f"{root}/{name}",
        clean=opened.was_clean,
        # All records below the cleaner checkpoint were flushed before they were compacted.
        recovery_point=max(
            opened.checkpoints[name].get(topic_partition, 0)
            for name in (RECOVERY_POINTS, CLEANER_OFFSETS)
        ),
        log_start_offset=opened.checkpoints[LOG_START_OFFSETS].get(topic_partition, 0),
        index_interval_bytes=config.index_interval_bytes,
        compacted=config.compact_enabled,
        now_ms=clock.wall_ms(),
        monotonic_ms=clock.monotonic_ms(),
        noted_topic_id=opened.new_replicas.get(topic_partition, ZERO_TOPIC_ID),
    )


async def _load(
    lane: Lane, root: str, requests: list[tuple[TopicPartition, LoadRequest]]
) -> list[tuple[TopicPartition, LoadedLog]]:
    def operation(files: Files) -> list[tuple[TopicPartition, LoadedLog]]:
        partitions: list[tuple[TopicPartition, LoadedLog]] = []
        for topic_partition, request in requests:
            try:
                loaded = load(files, request)
            except DamagedLog:
                # A directory with a damaged log counts as not cleanly shut down. Remove its
                # clean-shutdown marker, so that the next start does not trust the marker even if
                # the damaged partition is gone by then (E3, V10).
                _begin(files, root, loaded=False)
                raise
            if loaded.is_unfinished:
                # A crash interrupted the creation of this replica, which never had a record: leave
                # the replica out.
                loaded.notes.append((False, f"{request.path}: its creation was interrupted"))
                files.remove_tree(request.path)
            partitions.append((topic_partition, loaded))
        return partitions

    return await lane.submit(operation, Work.SLOW, "load partitions")


def _look(files: Files, root: str, cluster_id: str, broker_id: int) -> Opened:
    """Read a log directory's own files and the names of its partitions, but not the partitions.
    Raises ConfigError, OSError.
    """
    files.mkdir(root)
    for name in files.listdir(root):
        if name.endswith(names.TEMPORARY):
            files.unlink(f"{root}/{name}")
    opened = Opened(is_new=not files.exists(f"{root}/{META_PROPERTIES}"))
    _check_owner(files, root, cluster_id, broker_id)
    present = files.listdir(root)
    if CLEAN_SHUTDOWN in present:
        try:
            epochs = parse_clean_shutdown(files.read_file(f"{root}/{CLEAN_SHUTDOWN}"))
            opened.was_clean, opened.clean_shutdown = True, epochs
        except ValueError as error:
            text = f"{root}/{CLEAN_SHUTDOWN} proves no clean shutdown: {error}"
            opened.notes.append((logging.WARNING, text))
    for name in OFFSET_CHECKPOINTS:
        opened.checkpoints[name] = {}
        if name in present:
            try:
                opened.checkpoints[name] = parse_offsets(files.read_file(f"{root}/{name}"))
            except DamagedCheckpoint as error:
                text = f"{root}/{name} is not believed: {error}"
                opened.notes.append((logging.WARNING, text))
    if names.HELD_STRAYS in present:
        held = files.read_file(f"{root}/{names.HELD_STRAYS}").decode("utf-8", "replace")
        opened.held = held.splitlines()
    opened.is_one_of_several = known_log_dirs.NAME in present
    if names.NEW_REPLICAS in present:
        opened.new_replicas = new_replicas.parse(files.read_file(f"{root}/{names.NEW_REPLICAS}"))
    for name in present:
        topic_partition = names.parse_directory_name(name)
        if topic_partition is not None:
            opened.found.append(topic_partition)
        elif names.future_partition(name) is not None:
            opened.future_names.append(name)
        elif names.parse_aside_name(name) is not None:
            opened.aside.append(name)
        elif name not in KNOWN_FILES:
            opened.notes.append(
                (logging.WARNING, f"{root}/{name} is no partition directory and is ignored")
            )
    is_empty = not opened.found and not opened.aside and not opened.future_names
    opened.is_new = opened.is_new and is_empty
    return opened


def _check_owner(files: Files, root: str, cluster_id: str, broker_id: int) -> None:
    path = f"{root}/{META_PROPERTIES}"
    if not files.exists(path):
        files.replace_file(path, format_meta_properties(cluster_id, broker_id), sync=True)
        return
    try:
        owner = parse_meta_properties(files.read_file(path))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if owner.cluster_id is not None and owner.cluster_id != cluster_id:
        raise ConfigError(
            f"log directory {root} belongs to cluster {owner.cluster_id}, "
            f"this broker to cluster {cluster_id}; give it a directory of its own"
        )
    if owner.broker_id is not None and owner.broker_id != broker_id:
        raise ConfigError(
            f"log directory {root} belongs to broker {owner.broker_id}, "
            f"this is broker {broker_id}; give it a directory of its own"
        )


def _begin(files: Files, root: str, *, loaded: bool) -> None:
    """Remove the clean-shutdown marker, so that a later crash counts as an unclean shutdown.

    If all partitions are `loaded` and durable, the file with the topic ids of new replicas is
    removed, too, because each partition has its own topic id on disk.
    """
    gone = (CLEAN_SHUTDOWN, names.NEW_REPLICAS) if loaded else (CLEAN_SHUTDOWN,)
    for name in gone:
        if files.exists(f"{root}/{name}"):
            files.unlink(f"{root}/{name}")
    files.fsync_directory(root)


async def close_logs(logs: Sequence[PartitionLog]) -> None:
    """Close all logs of a directory and make them durable. Raises StorageError."""
    for resting in [log.close("closed") for log in logs]:
        await resting
    for removal in [_remove_failed_write(log) for log in logs]:
        await removal
    for idle in [log.flushes.idle() for log in logs]:
        await idle
    if not logs:
        return
    directory = logs[0].directory
    try:
        await replace_all(directory.lane, (file for log in logs for file in _files_at_close(log)))
    except StorageError as error:
        directory.failed(error)
        raise


def _remove_failed_write(log: PartitionLog) -> Completion[None]:
    segment = log.active_segment
    file, size = segment.file, segment.size_bytes
    if not file.write_failed:
        return Completion.of(None)
    log.truncation_unsynced = True
    return log.directory.lane.submit(
        lambda files: remove_failed_write(file, size, files), Work.SLOW, "cut back"
    )


def _files_at_close(log: PartitionLog) -> list[Replacement]:
    """Return the files that a start after a clean shutdown reads, and that are not on disk yet."""
    replacements = log.flushes.at_close()
    end = log.log_end_offset
    if log.closed_state != (log.truncations, end):
        log.closed_state = (log.truncations, end)
        replacements += index_files(log.active_segment)
        snapshot = f"{log.path}/{names.offset_name(end, names.SNAPSHOT)}"
        replacements.append((snapshot, log.producers.to_snapshot()))
    return replacements


class LogDirectory(DirectoryState):
    """One log directory and its replicas; all calls are on the event loop."""

    def __init__(
        self,
        lane: Lane,
        clock: Clock,
        tracer: Tracer,
        default_config: LogConfig,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
        reserve_bytes: int = 0,
    ) -> None:
        self.logs: dict[TopicPartition, PartitionLog] = {}
        super().__init__(
            lane, clock, tracer, default_config, max_open_files, self.logs, reserve_bytes
        )
        #: High watermarks that were loaded from the checkpoint; none exceeds the end of its log.
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: Monotonic time of the last write of high watermarks, or of the broker's start.
        self._high_watermarks_written_ms = clock.monotonic_ms()
        #: Broker epochs from the marker of a clean shutdown before this start; None after an
        #: unclean shutdown (E3).
        self.clean_shutdown: CleanEpochs | None = None
        #: Whether the broker has had several log directories, at this start or earlier (D6).
        self.is_one_of_several = False
        #: The stray replicas of the directory.
        self.stray_replicas = StrayReplicas(self, self.logs, self._add_loaded)
        self._replicas = ReplicaDirectories(
            self, self.logs, self.high_watermarks, self.stray_replicas
        )
        #: Future replicas of moves from another log directory (D11).
        self.future_logs = FutureLogs(self, self.logs, self._replicas.departures)
        #: For each replica that moved to this directory: the directories that may have older
        #: copies.
        self.moved_from: dict[TopicPartition, MovedFrom] = {}

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
        reserve_bytes: int = 0,
    ) -> LogDirectory:
        """Open the log directory, or create it if missing; recover it after an unclean shutdown.

        `learn_configs` gets the topics of the directory before `config_of` is called, because
        recovery must know which topics are compacted. A directory with less than `reserve_bytes`
        usable bytes is read-only from the start. If the disk has no room for the checkpoints, the
        directory opens without writing them (D14). Raises ConfigError if the directory belongs to
        another cluster or broker or cannot be used, and StorageError if the disk fails.
        """
        directory = cls(lane, clock, tracer, default_config, max_open_files, reserve_bytes)
        opened = await open_directory(
            lane, clock, cluster_id, broker_id, config_of, learn_configs, directory.log_note
        )
        await directory._take(opened, config_of)
        if reserve_bytes:
            await directory.space.look()
        return directory

    async def _take(self, opened: Opened, config_of: Callable[[str], LogConfig]) -> None:
        self.clean_shutdown = opened.clean_shutdown
        self.is_one_of_several = opened.is_one_of_several
        for name, offsets in opened.checkpoints.items():
            self.checkpoints[name].offsets = offsets
        for key, loaded in opened.partitions:
            self._add_loaded(key, loaded, config_of(key.topic))
            if loaded.moved_from is not None:
                self.moved_from[key] = loaded.moved_from
        for key, name, loaded in opened.futures:
            self.future_logs.add(self._log_of(key, loaded, config_of(key.topic), name))
        self.future_logs.discard(opened.useless)
        self.stray_replicas.opened(opened.held)
        for name in opened.aside:
            self._replicas.take_aside(name, self.clock.wall_ms())
        marks = self.checkpoints[HIGH_WATERMARKS].offsets
        self.high_watermarks.update(
            (key, max(min(marks[key], log.log_end_offset), log.log_start_offset))
            for key, log in self.logs.items()
            if key in marks
        )
        if not opened.was_clean:
            # If records were lost, the high watermark on disk must be lowered to the log end (V38).
            await self._write_high_watermarks_at_start()
        if not opened.was_clean or any(
            self.checkpoints[RECOVERY_POINTS].offsets.get(key) != log.recovery_point
            for key, log in self.logs.items()
        ):
            # Write the recovery points. If a recovery point on disk were below a gap left by
            # compaction, recovery after another crash would mistake the gap for lost records, and
            # remove all records after the gap.
            try:
                await self.checkpoint()
            except StorageError as error:
                # The disk is full, so the old checkpoint stays. The next recovery then starts at
                # lower recovery points and reads more batches than necessary.
                if not error.is_full:
                    raise
        self.tracer.event(
            "log_directory_opened", directory=self.path, partitions=len(self.logs),
            clean=opened.was_clean,
        )  # fmt: skip

    async def _write_high_watermarks_at_start(self) -> None:
        """Write the loaded high watermarks; on a full disk, remove a checkpoint with larger values.

        Raises StorageError.
        """
        checkpoint = self.checkpoints[HIGH_WATERMARKS]
        marks = checkpoint.offsets
        try:
            await checkpoint.write(self.high_watermarks)
        except StorageError as error:
            if not error.is_full:
                raise
            if any(mark > self.high_watermarks.get(key, -1) for key, mark in marks.items()):
                await checkpoint.remove()

    def _add_loaded(
        self, topic_partition: TopicPartition, loaded: LoadedLog, config: LogConfig
    ) -> PartitionLog:
        """Add the loaded log of a partition."""
        log = self.logs[topic_partition] = self._log_of(topic_partition, loaded, config)
        return log

    def _log_of(
        self, topic_partition: TopicPartition, loaded: LoadedLog, config: LogConfig, name: str = ""
    ) -> PartitionLog:
        """Make a PartitionLog of a loaded log. `name` is the name of the log's directory; it is
        empty if the directory is named after the partition.
        """
        log = PartitionLog(
            self,
            topic_partition,
            loaded.topic_id,
            config,
            loaded.segments,
            loaded.log_start_offset,
            loaded.log_end_offset,
            loaded.recovery_point,
            loaded.epochs,
            loaded.producers,
            name,
        )
        log.snapshots = loaded.snapshots
        log.names_changed = loaded.names_changed
        if loaded.is_sealed:
            log.closed_state = (0, loaded.log_end_offset)
        for segment in loaded.segments[:-1]:
            if segment.sealed:
                self.indexes.used(segment)
        if loaded.cut_bytes:
            self.tracer.mark("log_cut_at_start")
            self.tracer.event(
                "log_recovered", partition=str(topic_partition),
                end_offset=loaded.log_end_offset, cut_bytes=loaded.cut_bytes,
            )  # fmt: skip
        return log

    # replicas

    @property
    def strays(self) -> Mapping[str, Stray]:
        """Strays by directory name."""
        return self.stray_replicas.found

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig
    ) -> Completion[PartitionLog]:
        """Create an empty replica; see `create_many`."""
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
        """Create empty replicas; one directory sync makes their names durable before completion.

        Raises KafkaError for a name that V24 forbids, and ValueError for a replica that exists. The
        returned completion may fail with StorageError.
        """
        for topic_partition, _, _ in replicas:
            # A future replica of this partition belongs to an earlier replica, so remove it first.
            self.future_logs.remove(topic_partition)
        return self._replicas.create_many(replicas)

    def delete(self, topic_partition: TopicPartition) -> Completion[None]:
        """Rename the replica's directory now, and remove it after `file.delete.delay.ms` (V34)."""
        delay_ms = self.logs[topic_partition].config.file_delete_delay_ms
        return self._replicas.leave(topic_partition, names.DELETE_SUFFIX, delay_ms)

    def set_aside(
        self, topic_partition: TopicPartition, high_watermark: int = 0
    ) -> Completion[None]:
        """Set the replica aside as a stray: the broker keeps and lists the stray, but does not
        serve it (V35, V45).
        """
        return self._replicas.leave(topic_partition, names.STRAY_SUFFIX, None, high_watermark)

    def forget_moved_from(self, topic_partition: TopicPartition) -> None:
        """Note that the older copies of a replica that moved here are gone for good."""
        if self.moved_from.pop(topic_partition, None) is None or self.failure is not None:
            return
        path = f"{self.path}/{names.directory_name(topic_partition)}/{names.MOVED_FROM}"

        def remove(files: Files) -> None:
            if files.exists(path):
                files.unlink(path)

        def removed(done: Completion[None]) -> None:
            if done.error is not None:
                self.failed(done.error)

        if not self.is_closed:
            self.lane.submit(remove, Work.SLOW, "forget a move").then(removed)

    def purge_strays(self, now_ms: int, delay_ms: int) -> Completion[int]:
        """Remove strays that are at least `delay_ms` old and are not held; return their number."""
        return self.stray_replicas.purge(now_ms, delay_ms)

    def hold_strays(self, held: Iterable[str]) -> Completion[None]:
        """Keep the strays `held` until an operator removes or restores them (V35)."""
        return self.stray_replicas.hold(held)

    # checkpoints and flushes

    def write_high_watermarks(
        self, offsets: Mapping[TopicPartition, int], at_least_every_ms: int = 0
    ) -> Completion[None]:
        """Write the high watermarks of all replicas; a replica that is not in `offsets` keeps its
        last high watermark (V34).

        The checkpoint is written if its content changes. It is also written if the last write was
        `at_least_every_ms` ago, so that the broker notices the failure of an idle disk. If
        `at_least_every_ms` is 0, the checkpoint is written only if its content changes.
        """
        checkpoint = self.checkpoints[HIGH_WATERMARKS]
        new: dict[TopicPartition, int] = {}
        for key, log in self.logs.items():
            offset = offsets.get(key, checkpoint.offsets.get(key))
            if offset is not None:
                end = log.log_end_offset if log.truncating_to is None else log.truncating_to
                new[key] = min(offset, end)
        for key, log in self.future_logs.found.items():
            offset = offsets.get(key, checkpoint.offsets.get(key))
            if offset is not None:
                new[key] = min(offset, log.log_end_offset)
        now_ms = self.clock.monotonic_ms()
        is_due = 0 < at_least_every_ms <= now_ms - self._high_watermarks_written_ms
        if new != checkpoint.offsets or is_due:
            self._high_watermarks_written_ms = now_ms
        # A full disk needs no extra write, because the probes (test writes) already show whether it
        # works.
        return self._write(checkpoint, new, even_unchanged=is_due and not self.space.is_full)

    def flush_due(self, now_ms: int) -> Completion[None]:
        """Flush logs whose unflushed records are older than their topic's flush.ms."""
        due = [
            log.flush()
            for log in self.logs.values()
            if log.log_end_offset > log.recovery_point
            and now_ms - log.oldest_unflushed_ms >= log.config.flush_ms
        ]
        return all_of(due)

    # closing

    async def close(self, epochs: CleanEpochs) -> None:
        """Write all state to disk, then the clean-shutdown marker (E3); accept no more operations.

        The broker has lost no record since it registered under the first of `epochs`, which end
        with the current epoch. If a write fails, raises StorageError and leaves no marker.
        """
        self.is_closed = True
        try:
            if self.failure is not None:
                raise self.failure
            # With the clean-shutdown marker, the broker's next start trusts every replica. Replicas
            # whose rename a full disk refused were closed without a flush, so they must be renamed
            # before the marker is written.
            await self._replicas.departures.all_finished()
            await close_logs([*self.logs.values(), *self.future_logs.found.values()])
            await self.checkpoint()
            marker, path = format_clean_shutdown(epochs), f"{self.path}/{CLEAN_SHUTDOWN}"
            await self.lane.submit(
                lambda files: files.replace_file(path, marker, sync=True), Work.SLOW, "clean marker"
            )
        finally:
            for log in (*self.logs.values(), *self.future_logs.found.values()):
                log.forget_files()
            await self.lane.close()
