"""Future replicas of a log directory: copies of replicas that move here from another one (D11).

A future replica has Kafka's name, `TOPIC-PARTITION.ID-future`, and is a log like any other: it is
appended to, truncated and flushed, and the directory's checkpoints hold its offsets. It serves no
one. It becomes the replica of its partition by one rename (`replacement`), or goes as a deleted one
does. A start recovers those that it finds; whoever gives the partition its role decides whether
they go on. One that cannot be recovered is removed: its records are where they were. Loop only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.completion import Completion
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.ports import Files, Lane, Work
from tidelog.core.types import TopicId, TopicPartition
from tidelog.log import names
from tidelog.log.checkpoints import after_all
from tidelog.log.config import LogConfig
from tidelog.log.directory_files import PARTITION_METADATA, format_partition_metadata
from tidelog.log.directory_state import DirectoryState
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_state import ProducerState
from tidelog.log.recovery import LoadedLog, LoadRequest, load
from tidelog.log.recovery_walk import DamagedLog
from tidelog.log.segment import Segment

if TYPE_CHECKING:
    from tidelog.log.replica_departures import ReplicaDepartures


class FoundFuture(NamedTuple):
    """A future replica that a start found and recovered."""

    topic_partition: TopicPartition
    name: str
    loaded: LoadedLog


async def load_futures(
    lane: Lane, requests: Mapping[str, LoadRequest], note: Callable[[int, str], None]
) -> tuple[list[FoundFuture], list[str]]:
    """Recover the future replicas of these names.

    Returns them, and the names of those that are to be removed: damaged ones, and all but the
    longest of a partition. Raises StorageError.
    """
    found: dict[TopicPartition, FoundFuture] = {}
    useless: list[str] = []
    for name, request in requests.items():
        topic_partition = names.future_partition(name)
        if topic_partition is None:
            useless.append(name)
            continue

        def read(files: Files, request: LoadRequest = request) -> LoadedLog:
            return load(files, request)

        try:
            loaded = await lane.submit(read, Work.SLOW, "load a future replica")
        except DamagedLog as error:
            note(logging.WARNING, f"{error}: the future replica is removed")
            useless.append(name)
            continue
        for is_warning, text in loaded.notes:
            note(logging.WARNING if is_warning else logging.INFO, text)
        other = found.get(topic_partition)
        if loaded.is_unfinished or loaded.is_topic_unknown:
            useless.append(name)
        elif other is None or other.loaded.log_end_offset < loaded.log_end_offset:
            found[topic_partition] = FoundFuture(topic_partition, name, loaded)
            if other is not None:
                useless.append(other.name)
        else:
            useless.append(name)
    return list(found.values()), useless


class FutureLogs:
    """The future replicas of one log directory."""

    __slots__ = ("_departures", "_directory", "_logs", "_names_given", "found")

    def __init__(
        self,
        directory: DirectoryState,
        logs: Mapping[TopicPartition, PartitionLog],
        departures: ReplicaDepartures,
    ) -> None:
        """`logs` are the directory's own replicas: no future one is made beside its present one."""
        self._directory = directory
        self._logs = logs
        self._departures = departures
        self._names_given = 0
        self.found: dict[TopicPartition, PartitionLog] = {}

    def add(self, log: PartitionLog) -> None:
        """Take a future replica that a start has found."""
        self._directory.futures[log.topic_partition] = self.found[log.topic_partition] = log

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        start_offset: int,
        producers: ProducerState,
    ) -> Completion[PartitionLog]:
        """Create a future replica, which begins at `start_offset`; its name is durable when done.

        `producers` are those of earlier records. Raises KafkaError INVALID_TOPIC_EXCEPTION for a
        name that is too long. Raises ValueError if the directory already has the present replica or
        a future one. The completion's error is a StorageError.
        """
        directory = self._directory
        if topic_partition in self._logs or topic_partition in self.found:
            raise ValueError(f"{topic_partition} is in {directory.path} already")
        now_ms = directory.clock.wall_ms()
        self._names_given += 1
        try:
            name = names.future_name(topic_partition, now_ms, self._names_given)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
        completion: Completion[PartitionLog] = Completion()
        if directory.failure is not None:
            completion.fail(directory.failure)
            return completion
        # No checkpoint on disk may have an earlier replica of that partition.
        waiting = [self._departures.finished(topic_partition), directory.lower(topic_partition, -1)]
        path = f"{directory.path}/{name}"
        metadata = format_partition_metadata(topic_id)

        def make(files: Files) -> None:
            files.mkdir(path, exist_ok=False)
            files.replace_file(f"{path}/{PARTITION_METADATA}", metadata, sync=False)
            first = f"{path}/{names.offset_name(start_offset, names.LOG)}"
            files.close(files.open(first, write=True, create=True))
            files.fsync_directory(directory.path)

        def freed(error: BaseException | None) -> None:
            if error is not None:
                completion.fail(error)
            else:
                directory.lane.submit(make, Work.SLOW, "create a future replica").then(made)

        def made(done: Completion[None]) -> None:
            if done.error is not None:
                directory.failed(done.error)
                if directory.failure is None:
                    # Nothing is in it; the next start removes what cannot be removed now.
                    directory.lane.submit(
                        lambda files: files.remove_tree(path), Work.SLOW, "remove"
                    ).then(lambda _: None)
                completion.fail(done.error)
                return
            log = PartitionLog(
                directory, topic_partition, topic_id, config,
                [Segment(path, start_offset, directory.clock.wall_ms())],
                start_offset, start_offset, 0, LeaderEpochs(), producers, name,
            )  # fmt: skip
            log.names_changed = log.metadata_unsynced = True
            if len(producers):
                log.new_snapshots[start_offset] = producers.to_snapshot()
            self.add(log)
            completion.resolve(log)

        after_all(waiting, freed)
        return completion

    def discard(self, useless: Sequence[str]) -> None:
        """Remove directories of future replicas that a start has found and cannot use."""
        directory = self._directory
        root = directory.path

        def rename(files: Files) -> list[str]:
            gone = []
            for name in useless:
                gone.append(f"{root}/{name.removesuffix(names.FUTURE_SUFFIX)}{names.DELETE_SUFFIX}")
                files.rename(f"{root}/{name}", gone[-1])
            files.fsync_directory(root)
            return gone

        def renamed(done: Completion[list[str]]) -> None:
            if done.error is not None:
                directory.failed(done.error)
            else:
                directory.remove_later(done.result(), 0)

        if useless:
            directory.lane.submit(rename, Work.SLOW, "discard future replicas").then(renamed)

    def remove(self, topic_partition: TopicPartition) -> Completion[None]:
        """Rename a future replica as deleted, and remove it soon; done when the name is durable.

        Does nothing where there is none. The completion's error is a StorageError.
        """
        log = self.taken(topic_partition)
        if log is None:
            return Completion.of(None)
        return self._departures.begin(log, names.DELETE_SUFFIX, 0, 0)

    def taken(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Forget a future replica, and return its log; its files stay as they are."""
        self._directory.futures.pop(topic_partition, None)
        return self.found.pop(topic_partition, None)
