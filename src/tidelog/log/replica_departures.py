"""Departures: deleted replicas and strays leave a log directory by a rename.

A departure renames the replica's directory as soon as no operation of its log is under way. The
renamed directory of a deleted replica is removed later. A stray is kept; before the rename, the
departure writes the stray's state to a file in its directory (V34, V35, V45).

If a full disk refuses the rename, the directory keeps the partition's name and records, although
the broker no longer hosts the replica. Until the rename succeeds, no new replica of the partition
may be created, because the new replica would begin with the old replica's records (V23). A refused
rename is retried at intervals; it is also retried before a new replica of the partition is created,
and before a clean shutdown. All calls are on the event loop.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from tidelog.core.completion import Completion
from tidelog.core.ports import Files, Work
from tidelog.core.types import TopicPartition
from tidelog.log import names
from tidelog.log.checkpoints import all_of
from tidelog.log.directory_state import DirectoryState
from tidelog.log.partition_log import PartitionLog
from tidelog.log.stray_replicas import STRAY_STATE, StrayReplicas, StrayState, format_state

#: Time after which a rename that the disk refused is retried.
RETRY_MS = 5_000


class Departure(NamedTuple):
    """A replica that is leaving the log directory."""

    topic_partition: TopicPartition
    path: str
    #: The directory's new name.
    name: str
    #: Wall-clock time of the first attempt to rename the directory.
    since_ms: int
    #: Time until the renamed replica is removed; None for a stray, which is kept.
    delay_ms: int | None
    #: The content of a stray's state file; None for a deleted replica.
    state: bytes | None


class ReplicaDepartures:
    """The departures of deleted replicas and strays from one log directory."""

    __slots__ = (
        "_directory",
        "_names_given",
        "_names_taken",
        "_refused",
        "_scheduled",
        "_strays",
        "_under_way",
    )

    def __init__(self, directory: DirectoryState, strays: StrayReplicas) -> None:
        self._directory = directory
        self._strays = strays
        #: Renames under way, by partition; a new replica of the partition is created only after the
        #: rename.
        self._under_way: dict[TopicPartition, Completion[None]] = {}
        #: Replicas whose rename the disk refused; their directories still have the old names.
        self._refused: dict[TopicPartition, Departure] = {}
        #: Partitions whose refused rename will be retried by a timer.
        self._scheduled: dict[TopicPartition, None] = {}
        self._names_given = 0
        #: All names that renamed directories have or had in this process, so that no name is used
        #: twice.
        self._names_taken: dict[str, None] = {}

    def name_taken(self, name: str) -> None:
        """Note the name of a directory that was renamed before the broker's start."""
        self._names_taken[name] = None

    def begin(
        self, log: PartitionLog, suffix: str, delay_ms: int | None, high_watermark: int
    ) -> Completion[None]:
        """Close a log and rename its directory; the completion is done when the name is durable."""
        directory = self._directory
        topic_partition = log.topic_partition
        now_ms = directory.clock.wall_ms()
        name = self._unused_name(topic_partition, now_ms, suffix)
        completion: Completion[None] = Completion()
        self._under_way[topic_partition] = completion

        def quiet(_: Completion[None]) -> None:
            log.forget_files()
            state = None if delay_ms is not None else _state_of(log, high_watermark)
            self._rename(
                Departure(topic_partition, log.path, name, now_ms, delay_ms, state), completion
            )

        log.close("deleted" if delay_ms is not None else "set aside").then(quiet)
        return completion

    def finished(self, topic_partition: TopicPartition) -> Completion[None]:
        """Return a completion that is done when no old replica has the partition's directory name;
        retry a refused rename.

        If the rename fails, the returned completion fails with StorageError, and the directory
        keeps its old name.
        """
        under_way = self._under_way.get(topic_partition)
        if under_way is not None:
            return under_way
        departure = self._refused.get(topic_partition)
        if departure is None:
            return Completion.of(None)
        self._directory.tracer.mark("departure_repeated")
        completion = self._under_way[topic_partition] = Completion()
        self._rename(departure, completion)
        return completion

    def all_finished(self) -> Completion[None]:
        """Retry all refused renames; the completion fails with the first error if any rename fails
        again.
        """
        return all_of([self.finished(topic_partition) for topic_partition in list(self._refused)])

    def _rename(self, departure: Departure, completion: Completion[None]) -> None:
        topic_partition, path, name, _, _, state = departure
        directory = self._directory

        def rename(files: Files) -> None:
            if state is not None:
                files.replace_file(f"{path}/{STRAY_STATE}", state, sync=True)
            files.rename(path, f"{directory.path}/{name}")
            files.fsync_directory(directory.path)

        def renamed(done: Completion[None]) -> None:
            if self._under_way.get(topic_partition) is completion:
                del self._under_way[topic_partition]
            if done.error is not None:
                directory.failed(done.error)
                self._keep(departure)
                completion.fail(done.error)
                return
            self._refused.pop(topic_partition, None)
            self._renamed(departure)
            completion.resolve(None)

        directory.lane.submit(rename, Work.SLOW, "rename replica").then(renamed)

    def _renamed(self, departure: Departure) -> None:
        topic_partition, _, name, since_ms, delay_ms, _ = departure
        directory = self._directory
        if delay_ms is None:
            self._strays.add(name, names.directory_name(topic_partition), since_ms)
        else:
            directory.remove_later([f"{directory.path}/{name}"], delay_ms)
        directory.tracer.event(
            "replica_renamed",
            partition=str(topic_partition),
            directory=directory.path,
            name=name,
        )

    def _keep(self, departure: Departure) -> None:
        """Keep a replica whose rename the disk refused, and schedule the next attempt."""
        directory = self._directory
        if directory.failure is not None:
            return  # the broker is ending, and the next start finds the replica
        topic_partition = departure.topic_partition
        self._refused[topic_partition] = departure
        directory.tracer.mark("departure_refused")
        directory.log_note(
            logging.WARNING,
            f"{departure.path} cannot be renamed to {departure.name} now and keeps its records;"
            f" no replica of {topic_partition} is created until it is renamed: next attempt in"
            f" {RETRY_MS:,} ms",
        )
        if topic_partition not in self._scheduled:
            self._scheduled[topic_partition] = None
            directory.clock.call_later(RETRY_MS, lambda: self._try_again(topic_partition))

    def _try_again(self, topic_partition: TopicPartition) -> None:
        del self._scheduled[topic_partition]
        directory = self._directory
        if not directory.is_closed and directory.failure is None:
            self.finished(topic_partition)

    def _unused_name(self, topic_partition: TopicPartition, now_ms: int, suffix: str) -> str:
        """Return a new name for a directory; no renamed directory has this name, or has had it
        since the broker's start.
        """
        while True:
            self._names_given += 1
            name = names.aside_name(topic_partition, now_ms, self._names_given, suffix)
            if name not in self._names_taken:
                self._names_taken[name] = None
                return name


def _state_of(log: PartitionLog, high_watermark: int) -> bytes:
    """Return the offsets that a stray's state file keeps, because the checkpoints will no longer
    have them.
    """
    compacted = log.directory.cleaner_offset(log.topic_partition) or 0
    return format_state(
        StrayState(
            log.topic_partition,
            log.topic_id,
            # Compacted records were flushed before the compaction.
            max(log.recovery_point, min(compacted, log.log_end_offset)),
            log.log_start_offset,
            max(0, high_watermark),
        )
    )
