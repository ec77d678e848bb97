"""Future replicas of a log directory: copies of replicas that move in from another directory (D11).

A future replica has Kafka's name, `TOPIC-PARTITION.ID-future`. Future replicas are appended to,
truncated and flushed like any log, and the directory's checkpoints hold their offsets. A future
replica serves no requests. One rename makes a future replica the replica of its partition
(`replacement`). An abandoned future replica is removed like a deleted replica. At its start the
broker recovers all future replicas that it finds. Whether the move of a future replica continues is
decided later, when the broker becomes leader or follower of the partition. A future replica that
cannot be recovered is removed, because the current replica still has the records. All calls are on
the event loop.
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
    """A future replica that the broker found and recovered at its start."""

    topic_partition: TopicPartition
    name: str
    loaded: LoadedLog


async def load_futures(
    lane: Lane, requests: Mapping[str, LoadRequest], note: Callable[[int, str], None]
) -> tuple[list[FoundFuture], list[str]]:
    """Recover the future replicas that the broker found at its start.

    Returns the usable future replicas, and the directory names of useless future replicas, which
    must be removed. A damaged future replica is useless. If several future replicas of one
    partition are undamaged, only the longest is usable. Raises StorageError.
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
        """`logs` are the current replicas in this directory. A partition in `logs` gets no future
        replica in the same directory.
        """
        self._directory = directory
        self._logs = logs
        self._departures = departures
        self._names_given = 0
        self.found: dict[TopicPartition, PartitionLog] = {}

    def add(self, log: PartitionLog) -> None:
        """Add a future replica that the broker recovered at its start."""
        self._directory.futures[log.topic_partition] = self.found[log.topic_partition] = log

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        start_offset: int,
        producers: ProducerState,
    ) -> Completion[PartitionLog]:
        """Create an empty future replica that begins at `start_offset`; its directory's name is
        durable at completion.

        `producers` is the producer state before `start_offset`. Raises KafkaError
        INVALID_TOPIC_EXCEPTION for a name that is too long. Raises ValueError if the directory
        already has a current or future replica. The returned completion may fail with StorageError.
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
        # No checkpoint on disk may have an entry of an earlier replica of this partition.
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
                    # If the removal of the new, empty directory fails, the next start removes the
                    # directory.
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
        """Remove the directories of future replicas that the broker found at its start, but cannot
        use.
        """
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
        """Rename a future replica's directory like a deleted replica's; its files are removed
        later.

        The returned completion is done when the new name is durable, and may fail with
        StorageError. The method does nothing if the partition has no future replica.
        """
        log = self.taken(topic_partition)
        if log is None:
            return Completion.of(None)
        return self._departures.begin(log, names.DELETE_SUFFIX, 0, 0)

    def taken(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Remove a future replica from memory and return its log, leaving its files unchanged."""
        self._directory.futures.pop(topic_partition, None)
        return self.found.pop(topic_partition, None)
