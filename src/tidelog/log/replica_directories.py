"""The replicas' directories in a log directory: created, renamed, removed, set aside.

A replica is created with all others of its command and one sync. Before, entries that checkpoints
have of an earlier replica of its name are removed. A removed replica is renamed at once, when no
operation of its log is under way, and deleted later. A stray is kept until it is old (V34, V35,
V45). The next start finishes what a crash interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.completion import Completion
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.ports import Files, Work
from tidelog.core.types import TopicId, TopicPartition
from tidelog.log import names
from tidelog.log.checkpoints import after_all
from tidelog.log.config import LogConfig
from tidelog.log.directory_files import PARTITION_METADATA, format_partition_metadata
from tidelog.log.directory_state import DirectoryState
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_state import ProducerState
from tidelog.log.segment import Segment
from tidelog.log.stray_replicas import STRAY_STATE, StrayReplicas, StrayState, format_state

#: A replica to create.
NewReplica = tuple[TopicPartition, TopicId, LogConfig]


class ReplicaDirectories:
    """Creates and removes the replicas of one log directory. Loop only."""

    __slots__ = (
        "_directory",
        "_high_watermarks",
        "_leaving",
        "_logs",
        "_making",
        "_names_given",
        "_names_taken",
        "_strays",
    )

    def __init__(
        self,
        directory: DirectoryState,
        logs: dict[TopicPartition, PartitionLog],
        high_watermarks: dict[TopicPartition, int],
        strays: StrayReplicas,
    ) -> None:
        """`logs` and `high_watermarks` are the directory's own: replicas come and go in them."""
        self._directory = directory
        self._logs = logs
        self._high_watermarks = high_watermarks
        self._strays = strays
        self._making: dict[TopicPartition, None] = {}
        #: Renames under way: a replica of the same partition is created after them.
        self._leaving: dict[TopicPartition, Completion[None]] = {}
        self._names_given = 0
        #: Names of renamed directories since the start, and before it.
        self._names_taken: dict[str, None] = {}

    def take_aside(self, name: str, now_ms: int) -> None:
        """List a stray; finish an interrupted deletion; leave any other directory alone."""
        directory = self._directory
        aside = names.parse_aside_name(name)
        if aside is None:
            return
        self._names_taken[name] = None
        if aside.suffix == names.DELETE_SUFFIX:
            directory.remove_later([f"{directory.path}/{name}"], 0)
        elif aside.suffix == names.STRAY_SUFFIX:
            # A name of this broker has its time. Of another name only the present time is known.
            since_ms = aside.since_ms if 0 < aside.since_ms <= now_ms else now_ms
            self._strays.add(name, aside.partition_name, since_ms)

    def create_many(self, replicas: Sequence[NewReplica]) -> Completion[list[PartitionLog]]:
        """See LogDirectory.create_many."""
        directory = self._directory
        for topic_partition, _, _ in replicas:
            if topic_partition in self._logs or topic_partition in self._making:
                raise ValueError(f"{topic_partition} is in {directory.path} already")
            try:
                names.directory_name(topic_partition)
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
        completion: Completion[list[PartitionLog]] = Completion()
        if directory.failure is not None:
            completion.fail(directory.failure)
            return completion
        waiting: list[Completion[None]] = []
        for topic_partition, _, _ in replicas:
            self._making[topic_partition] = None
            leaving = self._leaving.get(topic_partition)
            if leaving is not None:
                waiting.append(leaving)
            # No checkpoint on disk may have an earlier replica of that name.
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

        def make(files: Files) -> None:
            for path, metadata in made:
                files.mkdir(path)
                files.replace_file(f"{path}/{PARTITION_METADATA}", metadata, sync=False)
                log = files.open(f"{path}/{names.offset_name(0, names.LOG)}", create=True)
                files.close(log)
            files.fsync_directory(root)

        def created(done: Completion[None]) -> None:
            self._made(replicas)
            if done.error is not None:
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
        """Rename a replica's directory; done when the new name is durable.

        It is removed after `delay_ms`. Where that is None it is kept as stray, with the replica's
        state and `high_watermark`.
        """
        directory = self._directory
        log = self._logs.pop(topic_partition)
        self._high_watermarks.pop(topic_partition, None)
        now_ms = directory.clock.wall_ms()
        name = self._unused_name(topic_partition, now_ms, suffix)
        new_path = f"{directory.path}/{name}"
        completion: Completion[None] = Completion()
        self._leaving[topic_partition] = completion

        def quiet(_: Completion[None]) -> None:
            log.forget_files()
            state = None if delay_ms is not None else _state_of(log, high_watermark)

            def rename(files: Files) -> None:
                if state is not None:
                    files.replace_file(f"{log.path}/{STRAY_STATE}", state, sync=True)
                files.rename(log.path, new_path)
                files.fsync_directory(directory.path)

            directory.lane.submit(rename, Work.SLOW, "rename replica").then(renamed)

        def renamed(done: Completion[None]) -> None:
            if self._leaving.get(topic_partition) is completion:
                del self._leaving[topic_partition]
            if done.error is not None:
                directory.failed(done.error)
                completion.fail(done.error)
                return
            if delay_ms is None:
                partition_name = names.directory_name(topic_partition)
                self._strays.add(name, partition_name, now_ms)
            else:
                directory.remove_later([new_path], delay_ms)
            directory.tracer.event(
                "replica_renamed",
                partition=str(topic_partition),
                directory=directory.path,
                name=name,
            )
            completion.resolve(None)

        log.close("deleted" if delay_ms is not None else "set aside").then(quiet)
        return completion

    def _unused_name(self, topic_partition: TopicPartition, now_ms: int, suffix: str) -> str:
        """Return a name that no directory here has, or has had since the start."""
        while True:
            self._names_given += 1
            name = names.aside_name(topic_partition, now_ms, self._names_given, suffix)
            if name not in self._names_taken:
                self._names_taken[name] = None
                return name


def _state_of(log: PartitionLog, high_watermark: int) -> bytes:
    """Return the state from which a stray is restored; the checkpoints will forget it."""
    compacted = log.directory.cleaner_offset(log.topic_partition) or 0
    return format_state(
        StrayState(
            log.topic_partition,
            log.topic_id,
            # Compacted records were flushed before.
            max(log.recovery_point, min(compacted, log.log_end_offset)),
            log.log_start_offset,
            max(0, high_watermark),
        )
    )
