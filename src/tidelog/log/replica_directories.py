"""The creation, renaming and removal of replicas' directories in a log directory.

All new replicas of one LeaderAndIsr command are created together, with one sync. Each replica gets
a directory that did not exist, because existing files of an earlier replica would become part of
the new replica (V23). Before the creation, checkpoint entries of an earlier replica of the same
name are removed. `replica_departures` renames deleted replicas and strays (V34, V35, V45). The next
start completes renames and removals that a crash interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.completion import Completion
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.ports import Files, Work
from tidelog.core.types import TopicId, TopicPartition
from tidelog.log import names, new_replicas
from tidelog.log.checkpoints import after_all
from tidelog.log.config import LogConfig
from tidelog.log.directory_files import PARTITION_METADATA, format_partition_metadata
from tidelog.log.directory_state import DirectoryState
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_state import ProducerState
from tidelog.log.replica_departures import ReplicaDepartures
from tidelog.log.segment import Segment
from tidelog.log.stray_replicas import StrayReplicas

#: A replica to create: partition, topic id, and configuration of its log.
NewReplica = tuple[TopicPartition, TopicId, LogConfig]


def make_directory(files: Files, path: str) -> None:
    """Make the directory of a new replica; raise OSError EEXIST if the directory exists (V23)."""
    files.mkdir(path, exist_ok=False)


class ReplicaDirectories:
    """The directories of the replicas in one log directory; all calls are on the event loop."""

    __slots__ = (
        "_directory",
        "_high_watermarks",
        "_logs",
        "_making",
        "_strays",
        "_unfinished",
        "departures",
    )

    def __init__(
        self,
        directory: DirectoryState,
        logs: dict[TopicPartition, PartitionLog],
        high_watermarks: dict[TopicPartition, int],
        strays: StrayReplicas,
    ) -> None:
        """`logs` and `high_watermarks` belong to the log directory, and this class changes them."""
        self._directory = directory
        self._logs = logs
        self._high_watermarks = high_watermarks
        self._strays = strays
        self._making: dict[TopicPartition, None] = {}
        #: Paths of directories that a failed creation left in this process; they never held a
        #: replica.
        self._unfinished: dict[str, None] = {}
        #: The renames of deleted replicas and strays that leave the log directory.
        self.departures = ReplicaDepartures(directory, strays)

    def take_aside(self, name: str, now_ms: int) -> None:
        """Handle a renamed directory that the broker finds at its start: list it if it is a stray,
        else finish its interrupted deletion.
        """
        directory = self._directory
        aside = names.parse_aside_name(name)
        if aside is None:
            return
        self.departures.name_taken(name)
        if aside.suffix == names.DELETE_SUFFIX:
            directory.remove_later([f"{directory.path}/{name}"], 0)
        elif aside.suffix == names.STRAY_SUFFIX:
            # The name of a stray's directory contains the time when tidelog renamed it. If the name
            # has no valid time, the stray's age counts from this start.
            since_ms = aside.since_ms if 0 < aside.since_ms <= now_ms else now_ms
            self._strays.add(name, aside.partition_name, since_ms)

    def create_many(self, replicas: Sequence[NewReplica]) -> Completion[list[PartitionLog]]:
        """Create empty replicas; see LogDirectory.create_many."""
        directory = self._directory
        for topic_partition, _, _ in replicas:
            if topic_partition in self._logs or topic_partition in self._making:
                raise ValueError(f"{topic_partition} is in {directory.path} already")
            try:
                names.directory_name(topic_partition)
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
        completion: Completion[list[PartitionLog]] = Completion()
        if directory.failure is not None or directory.space.is_full:
            completion.fail(directory.failure or directory.space.error())
            return completion
        waiting: list[Completion[None]] = []
        for topic_partition, _, _ in replicas:
            self._making[topic_partition] = None
            waiting.append(self.departures.finished(topic_partition))
            # No checkpoint on disk may keep an entry of an earlier replica of the same name.
            waiting += [
                checkpoint.lower(topic_partition, -1)
                for checkpoint in directory.checkpoints.values()
            ]
        after_all(waiting, lambda error: self._create_now(replicas, completion, error))
        return completion

    def _create_now(
        self,
        replicas: Sequence[NewReplica],
        completion: Completion[list[PartitionLog]],
        error: BaseException | None,
    ) -> None:
        directory = self._directory
        if error is not None:
            self._made(replicas)
            completion.fail(error)
            return
        root = directory.path
        made = [
            (f"{root}/{names.directory_name(key)}", format_partition_metadata(topic_id))
            for key, topic_id, _ in replicas
        ]
        unfinished = [path for path, _ in made if path in self._unfinished]
        begun: list[str] = []

        def make(files: Files) -> None:
            for path in unfinished:
                files.remove_tree(path)
            new_replicas.take_back(files, root, [key for key, _, _ in replicas])
            for path, metadata in made:
                make_directory(files, path)
                begun.append(path)
                files.replace_file(f"{path}/{PARTITION_METADATA}", metadata, sync=False)
                log = files.open(f"{path}/{names.offset_name(0, names.LOG)}", create=True)
                files.close(log)
            new_replicas.append(files, root, [(key, topic_id) for key, topic_id, _ in replicas])
            files.fsync_directory(root)

        def created(done: Completion[None]) -> None:
            self._made(replicas)
            for path in unfinished:
                self._unfinished.pop(path, None)
            if done.error is not None:
                self._unfinished.update(dict.fromkeys((*unfinished, *begun)))
                directory.failed(done.error)
                completion.fail(done.error)
                return
            completion.resolve([self._add_new(*replica) for replica in replicas])

        directory.lane.submit(make, Work.SLOW, "create replicas").then(created)

    def _made(self, replicas: Sequence[NewReplica]) -> None:
        for topic_partition, _, _ in replicas:
            self._making.pop(topic_partition, None)

    def _add_new(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig
    ) -> PartitionLog:
        directory = self._directory
        path = f"{directory.path}/{names.directory_name(topic_partition)}"
        segment = Segment(path, 0, directory.clock.wall_ms())
        log = PartitionLog(
            directory, topic_partition, topic_id, config, [segment], 0, 0, 0,
            LeaderEpochs(), ProducerState(),
        )  # fmt: skip
        log.names_changed = log.metadata_unsynced = True
        self._logs[topic_partition] = log
        return log

    def leave(
        self,
        topic_partition: TopicPartition,
        suffix: str,
        delay_ms: int | None,
        high_watermark: int = 0,
    ) -> Completion[None]:
        """Rename a replica's directory; the completion is done when the new name is durable.

        The renamed replica is removed after `delay_ms`. If `delay_ms` is None, the replica is kept
        as a stray, with its state and `high_watermark`.
        """
        log = self._logs.pop(topic_partition)
        self._high_watermarks.pop(topic_partition, None)
        return self.departures.begin(log, suffix, delay_ms, high_watermark)
