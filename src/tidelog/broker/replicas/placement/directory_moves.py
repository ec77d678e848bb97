"""The moves of this broker's replicas between its log directories (D11, KIP-113).

A request names the target directory of a replica. A request for another target replaces the move in
progress; a request for the replica's current directory cancels the move. If the replica does not
exist here yet, the broker remembers the requested directory, and later creates the replica there;
as in Kafka, it remembers the directory in memory only. Code that removes a replica or sets it aside
first ends the replica's move. A move that a restart interrupted continues when the replica has a
role again, as in Kafka. If the source directory fails, the replica is offline; the future replica
stays, and the move continues if the directory returns. If the target directory fails, the move is
over.

Unlike Kafka, a broker with a failed directory continues to move other replicas. Kafka forbids that,
because after a restart the broker could find two future replicas and refuse to start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from tidelog.broker.replicas.metrics import DIRECTORY_MOVE_BYTE_RATE, DIRECTORY_MOVE_MAX_LAG
from tidelog.broker.replicas.placement.directory_move import DirectoryMove, future_config
from tidelog.broker.replicas.placement.move_pace import MovePace
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.limits import MAX_PREFERRED_LOG_DIRS
from tidelog.core.log_dir_keys import CORDON, slow_action_includes, takes_no_new
from tidelog.core.ports import Files, Work
from tidelog.core.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.replication.directory_move import fits

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import PartitionLog

#: Milliseconds after which files that were due for deletion are certainly removed.
_GONE_MS: Final = 1_000
#: Shortest pause in milliseconds between updates of the metrics, because each update looks at all
#: moves.
_SHOW_MS: Final = 1_000


class DirectoryMoves:
    """All moves of one broker's replicas between log directories. Only the event loop uses this
    class.
    """

    def __init__(
        self,
        services: Services,
        replicas: HostedPartitions,
        on_ended: Callable[[], None],
        on_replaced: Callable[[str, str], None],
    ) -> None:
        """`on_ended` is called when a move ends: it is done, cancelled, or has failed.

        `on_replaced` gets the source and target paths of a replica that has moved.
        """
        self._services = services
        self._replicas = replicas
        self._moves: dict[TopicPartition, DirectoryMove] = {}
        #: Requested directories of replicas that do not exist here yet.
        self._preferred: dict[TopicPartition, str] = {}
        self._pace = MovePace(services)
        self._is_closing = False
        self._on_ended, self._on_replaced = on_ended, on_replaced
        #: Moved replicas whose former files still exist: (directory, bytes, monotonic time of the
        #: deletion).
        self._departing: list[tuple[str, int, int]] = []
        #: Monotonic time of the last update of the metrics.
        self._shown_ms = -_SHOW_MS

    def get(self, topic_partition: TopicPartition) -> DirectoryMove | None:
        """Return the move of a replica, None if it has none."""
        return self._moves.get(topic_partition)

    def under_way(self) -> list[DirectoryMove]:
        """Return all moves that have not ended."""
        return list(self._moves.values())

    def departing_bytes(self, path: str) -> int:
        """Return the bytes of files in a directory that belong to replicas moved away from it."""
        now_ms = self._services.clock.monotonic_ms()
        self._departing = [each for each in self._departing if each[2] > now_ms]
        return sum(size_bytes for source, size_bytes, _ in self._departing if source == path)

    # requests

    async def move(self, topic_partition: TopicPartition, path: str) -> None:
        """Move a replica to directory `path`, while the caller lets no controller command run.

        Raises KafkaError with one of the following codes, as Kafka responds. LOG_DIR_NOT_FOUND: the
        directory is not in `log.dirs`. KAFKA_STORAGE_ERROR: the directory has failed, is full or
        too small, or the replica is in a failed directory. REPLICA_NOT_AVAILABLE: this broker hosts
        no such replica, and remembers the directory. INVALID_TOPIC_EXCEPTION: the partition's name
        is too long for a future replica.
        """
        target = self._directory(path)
        await self._check(topic_partition, target)
        move = self._moves.get(topic_partition)
        if move is not None and move.target is not target:
            await self.end(topic_partition, f"{path} was asked for")
        await self._remove_futures(topic_partition, but=target)
        partition = self._replicas.get(topic_partition)
        if partition is None:
            self._refuse_missing(topic_partition, path)
            return
        if partition.directory is target or topic_partition in self._moves:
            return
        future = target.future_logs.found.get(topic_partition)
        if future is None:
            future = await self._create(partition, target)
        self._services.tracer.mark("directory_move_begun")
        self._begin(partition, target, future)

    async def _check(self, topic_partition: TopicPartition, target: LogDirectory) -> None:
        """Raise KafkaError if a move cannot begin; the replica's current move is unaffected."""
        partition, move = self._replicas.get(topic_partition), self._moves.get(topic_partition)
        if partition is None or partition.directory is target:
            return
        if move is not None and move.target is target:
            return
        if partition.topic_id == ZERO_TOPIC_ID:
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"the topic id of {topic_partition} is not known before its first role",
            )
        self._check_cordon(target.path)
        self._check_speed(target)
        if target.space.is_full:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {target.path} is full and read-only"
            )
        future = target.future_logs.found.get(topic_partition)
        await self._check_room(partition, target, 0 if future is None else future.size_bytes)

    def _directory(self, path: str) -> LogDirectory:
        for directory in self._replicas.directories:
            if directory.path == path:
                return directory
        if path in self._replicas.failed:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"log directory {path} has failed: {self._replicas.failed[path]}",
            )
        good = ", ".join(directory.path for directory in self._replicas.directories)
        raise KafkaError(
            ErrorCode.LOG_DIR_NOT_FOUND,
            f"{path!r:.300} is not a log directory of this broker, which has {good}",
        )

    def _refuse_missing(self, topic_partition: TopicPartition, path: str) -> None:
        if topic_partition in self._replicas.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the replica of {topic_partition} is in a log directory that has failed",
            )
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = path
        if len(self._preferred) > MAX_PREFERRED_LOG_DIRS:
            del self._preferred[next(iter(self._preferred))]
        raise KafkaError(
            ErrorCode.REPLICA_NOT_AVAILABLE,
            f"there is no replica of {topic_partition} here; one that is created will be in {path}",
        )

    def _check_cordon(self, path: str) -> None:
        config = self._services.config
        if takes_no_new(path, config.cordoned_log_dirs, config.draining_log_dirs):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"log directory {path} takes no new replicas: it is cordoned (cordoned.log.dirs)",
            )

    def _check_speed(self, target: LogDirectory) -> None:
        action = self._services.config.log_dir_slow_action
        if target.speed.is_slow and slow_action_includes(action, CORDON):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"log directory {target.path} takes no new replicas: it is slow"
                f" (log.dir.slow.action={action})",
            )

    async def _check_room(
        self, partition: Partition, target: LogDirectory, copied_bytes: int
    ) -> None:
        path = target.path

        def look(files: Files) -> int:
            return files.volume_size(path).usable_bytes

        try:
            usable = await target.lane.submit(look, Work.SLOW, "volume_size")
        except StorageError as error:
            target.failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        awaited = sum(each.awaited_bytes for each in self._moves.values() if each.target is target)
        if not fits(partition.log.size_bytes, copied_bytes, awaited, usable):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{path} has {usable:,} bytes left, {awaited:,} of them for other moves, and the"
                f" replica of {partition.topic_partition} has {partition.log.size_bytes:,}",
            )

    async def _create(self, partition: Partition, target: LogDirectory) -> PartitionLog:
        log = partition.log
        start = log.log_start_offset
        try:
            return await target.future_logs.create(
                partition.topic_partition,
                partition.topic_id,
                future_config(log.config),
                start,
                log.producers.before(start),
            )
        except StorageError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None

    def preferred(
        self, topic_partition: TopicPartition, directories: Iterable[LogDirectory]
    ) -> LogDirectory | None:
        """Return the directory that was requested before the replica existed, if it has not failed.

        The requested directory applies to one creation of the replica only, so this method forgets
        the request.
        """
        path = self._preferred.pop(topic_partition, None)
        if path is None:
            return None
        return next((each for each in directories if each.path == path), None)

    # moves

    def _begin(self, partition: Partition, target: LogDirectory, future: PartitionLog) -> None:
        services, key = self._services, partition.topic_partition
        if self._is_closing or self._replicas.get(key) is not partition:
            return
        move = self._moves[key] = DirectoryMove(
            services, self._pace, partition, target, future,
            self._is_hosted, self.copied, self._replaced,
        )  # fmt: skip
        self._report(move, "directory_move_begun", "moves")
        services.tasks.spawn(f"directory move of {key}", move.run())

    def _report(self, move: DirectoryMove, event: str, what: str, why: str = "") -> None:
        self._services.tracer.event(
            event, partition=str(move.partition.topic_partition), source=move.source.path,
            target=move.target.path, end_offset=move.future.log_end_offset,
        )  # fmt: skip
        self._services.tracer.log(
            "server",
            logging.INFO,
            f"{move.partition.topic_partition} {what} from {move.source.path} to"
            f" {move.target.path}{why}",
        )

    def roles_taken(self, partitions: Iterable[Partition]) -> None:
        """Continue moves of these replicas that a restart or a directory failure interrupted."""
        found = self._futures()
        if not found:
            return
        for partition in partitions:
            key = partition.topic_partition
            for target in found.get(key, ()):
                future = target.future_logs.found[key]
                if key in self._moves:
                    if self._moves[key].target is not target:
                        self._remove(target, key)
                elif target is partition.directory or future.topic_id != partition.topic_id:
                    self._remove(target, key)
                else:
                    self._services.tracer.mark("directory_move_resumed")
                    self._begin(partition, target, future)

    def keep_only(self, listed: Collection[TopicPartition], topics: Collection[str]) -> None:
        """Remove future replicas of partitions that no longer belong to this broker (V45).

        A partition belongs to this broker if `listed` has the partition, `topics` has its topic, or
        a failed directory has its replica.
        """
        for key, targets in self._futures().items():
            is_here = self._replicas.get(key) is not None or key in self._replicas.offline
            if not is_here and key not in listed and key.topic not in topics:
                for target in targets:
                    self._remove(target, key)

    def concerns(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker has a future replica of the partition."""
        return topic_partition in self._moves or any(
            topic_partition in directory.future_logs.found
            for directory in self._replicas.directories
        )

    async def end(self, topic_partition: TopicPartition, why: str) -> None:
        """End the move of a replica, and remove its future replica.

        If the future replica is already replacing the current replica, the replacement completes
        first, so the replica may be in the target directory afterwards.
        """
        move = self._forget(topic_partition)
        if move is not None:
            while move.replacing is not None:
                await move.replacing
            if topic_partition in move.target.future_logs.found:
                self._services.tracer.mark("directory_move_cancelled")
                self._report(move, "directory_move_cancelled", "moves no longer", f": {why}")
        await self._remove_futures(topic_partition)

    def _forget(self, topic_partition: TopicPartition) -> DirectoryMove | None:
        move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.is_over = True
            self._show_progress(self._services.clock.monotonic_ms())
            self._on_ended()
        return move

    async def _remove_futures(
        self, topic_partition: TopicPartition, but: LogDirectory | None = None
    ) -> None:
        for directory in list(self._replicas.directories):
            if directory is not but and topic_partition in directory.future_logs.found:
                try:
                    await directory.future_logs.remove(topic_partition)
                except StorageError as error:
                    # The disk did not remove the future replica; a later attempt or the next start
                    # removes it.
                    self._services.tracer.log(
                        "server", logging.ERROR, f"cannot remove a future replica: {error}"
                    )

    def _remove(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        self._services.tracer.mark("future_replica_removed")
        directory.future_logs.remove(topic_partition)

    def _futures(self) -> dict[TopicPartition, list[LogDirectory]]:
        found: dict[TopicPartition, list[LogDirectory]] = {}
        for directory in self._replicas.directories:
            for key in directory.future_logs.found:
                found.setdefault(key, []).append(directory)
        return found

    def directory_failed(self, path: str) -> None:
        """End the moves from and to a failed log directory; no file changes."""
        for key, move in list(self._moves.items()):
            if path in (move.source.path, move.target.path):
                self._forget(key)
                self._services.tracer.mark("directory_move_failed")
                self._report(move, "directory_move_failed", "cannot move", f": {path} has failed")

    async def close(self) -> None:
        """Stop all moves; the next start continues them."""
        self._is_closing = True
        moves = list(self._moves.values())
        self._moves.clear()
        for move in moves:
            move.is_over = True
        for move in moves:
            while move.replacing is not None:
                await move.replacing

    # methods that moves call

    def copied(self, count_bytes: int) -> None:
        """Count bytes that were copied."""
        now_ms = self._services.clock.monotonic_ms()
        self._pace.copied(count_bytes, now_ms)
        self._show_progress(now_ms)

    def _show_progress(self, now_ms: int) -> None:
        """Update the metrics of the moves' rate and lag; without moves, remove both metrics."""
        metrics = self._services.metrics
        if not self._moves:
            metrics.drop(DIRECTORY_MOVE_MAX_LAG)
            metrics.drop(DIRECTORY_MOVE_BYTE_RATE)
        elif now_ms - self._shown_ms >= _SHOW_MS:
            self._shown_ms = now_ms
            metrics.put(DIRECTORY_MOVE_BYTE_RATE, self._pace.bytes_per_second(now_ms))
            metrics.put(DIRECTORY_MOVE_MAX_LAG, max(each.lag for each in self._moves.values()))

    def _is_hosted(self, partition: Partition) -> bool:
        return self._replicas.get(partition.topic_partition) is partition

    def _replaced(self, move: DirectoryMove) -> None:
        key, log = move.partition.topic_partition, move.partition.log
        gone_ms = self._services.clock.monotonic_ms() + log.config.file_delete_delay_ms + _GONE_MS
        self._departing.append((move.source.path, log.size_bytes, gone_ms))
        self._on_replaced(move.source.path, move.target.path)
        if self._moves.get(key) is move:
            self._forget(key)
        self._services.tracer.mark("directory_move_swapped")
        self._report(move, "directory_move_swapped", "has moved")
