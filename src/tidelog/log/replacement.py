"""The replacement of a replica's log by its future log in another directory (D11).

During the replacement, no flush or other operation of the current log is under way, and appends are
planned but not written. The future log already has every record of the current log. A crash may
leave the future log under its old or its new name, and the next start must find it complete. Before
the rename, the replacement therefore makes durable: the future log's records and indexes, the
leader epochs and producers of the current log, and the checkpoints of the future log's directory.
If a crash leaves both logs, the `moved-from` file, which names the old directory, shows that the
future log is newer. After the rename, appends go to the new log. The old log is deleted like any
replica; if the deletion fails, the next start deletes the old log.

Source: LogManager.replaceCurrentWithFutureLog, which does not sync.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from tidelog.core.completion import Completion
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.ports import Files, Work
from tidelog.log import names
from tidelog.log.held_requests import HeldRequests
from tidelog.log.moved_from import MovedFrom, after_move, format_moved_from

if TYPE_CHECKING:
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import PartitionLog


class Replacement:
    """One attempt to replace a log by its future log; each public method is one step."""

    __slots__ = ("_current", "_future", "_held", "_source", "_target", "is_over")

    def __init__(
        self,
        source: LogDirectory,
        target: LogDirectory,
        current: PartitionLog,
        future: PartitionLog,
    ) -> None:
        self._source = source
        self._target = target
        self._current = current
        self._future = future
        self._held: HeldRequests[PartitionLog] | None = None
        self.is_over = False

    async def prepare(self, high_watermark: int) -> None:
        """Make the future log's records and `moved-from` file durable, while the current log still
        accepts operations.

        Raises StorageError.
        """
        future, target = self._future, self._target
        path, moved_from = f"{future.path}/{names.MOVED_FROM}", format_moved_from(self._moved_from)
        await future.flush()
        await target.write_high_watermarks({future.topic_partition: high_watermark})
        try:
            await target.lane.submit(
                lambda files: files.replace_file(path, moved_from, sync=True),
                Work.SLOW,
                "name the source of a move",
            )
        except StorageError as error:
            target.failed(error)
            raise

    @property
    def _moved_from(self) -> MovedFrom:
        source = self._source
        before = source.moved_from.get(self._future.topic_partition)
        return after_move(source.path, before, self._target.path)

    async def begin(self) -> None:
        """Wait until no operation on the current log runs; hold later flushes and truncations."""
        log = self._current
        assert log.held is None, f"{log.path} is being replaced already"
        self._held = log.held = HeldRequests()
        resting: Completion[None] = Completion()
        log.take_turn(lambda: resting.resolve(None), after_queue=False)
        await resting
        while not log.flushes.is_settled:
            await log.flushes.idle()

    async def write_down(self) -> None:
        """Make the future log durable, with the state of the current log that it takes over. Raises
        StorageError.

        Raises KafkaError KAFKA_STORAGE_ERROR if an error closed the current log: its producer state
        is then unknown, and the new log would accept batches without checking their sequence
        (V38).
        """
        current, future, target = self._current, self._future, self._target
        if current.is_closed:
            message = f"{current.topic_partition} takes nothing any more until the broker restarts"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        end = future.log_end_offset
        assert end == current.log_end_offset, f"{future.path} ends before {current.path} does"
        future.advance_log_start(min(current.log_start_offset, end))
        epochs = LeaderEpochs(current.epochs.entries())
        epochs.truncate_from_end(end)
        epochs.changed = True
        future.epochs = epochs
        if future.topic_id != current.topic_id:
            future.topic_id, future.metadata_unsynced = current.topic_id, True
        future.new_snapshots[end] = current.producers_at_end()
        await self._keep_ages()
        await future.flush()
        # If the recovery point on disk were below a gap left by compaction, recovery would mistake
        # the gap for lost records.
        await target.checkpoint()

    async def _keep_ages(self) -> None:
        """Give copied segments without timestamps the age of their originals.

        Raises StorageError. The age is the modification time of the segment's file: it is set to
        the time when the segment's last record was written to the current log. A power loss soon
        afterwards may undo this change. Records then seem too young, but never too old. Kafka
        instead counts the age of a copied segment without timestamps from the time of the copy.
        """
        current, future = self._current, self._future
        bases = [*future.base_offsets[1:], future.log_end_offset]
        modified: dict[str, int] = {}
        for segment, end in zip(future.segments, bases, strict=True):
            if segment.max_timestamp_ms < 0 and segment.size_bytes:
                source = current.segments[max(bisect_left(current.base_offsets, end) - 1, 0)]
                segment.last_modified_ms = source.last_modified_ms
                segment.created_ms = min(segment.created_ms, source.last_modified_ms)
                modified[segment.path(names.LOG)] = source.last_modified_ms
        if not modified:
            return

        def set_all(files: Files) -> None:
            for path, modified_ms in modified.items():
                files.set_modified(path, modified_ms)

        try:
            await self._target.lane.submit(set_all, Work.SLOW, "keep ages")
        except StorageError as error:
            self._target.failed(error)
            raise

    async def rename(self) -> None:
        """Rename the future log to the name of its partition.

        Raises StorageError if the log was not renamed.

        If the sync of the new name failed, the whole log directory has failed.
        """
        future, target = self._future, self._target
        key, root = future.topic_partition, target.path
        old, new = future.path, f"{root}/{names.directory_name(key)}"

        def rename(files: Files) -> None:
            for name in files.listdir(old):
                if name.endswith(names.DELETED):
                    files.unlink(f"{old}/{name}")
            files.rename(old, new)
            files.fsync_directory(root)

        try:
            await target.lane.submit(rename, Work.SLOW, "put a future replica in place")
        except StorageError as error:
            target.failed(error)
            raise

    def undo(self) -> Completion[None]:
        """Give the future log its old name again, because this broker no longer hosts the
        partition.
        """
        future, target = self._future, self._target
        old = f"{target.path}/{names.directory_name(future.topic_partition)}"
        new = future.path

        def rename(files: Files) -> None:
            files.rename(old, new)
            files.fsync_directory(target.path)

        completion: Completion[None] = Completion()

        def renamed(done: Completion[None]) -> None:
            if done.error is not None:
                target.failed(done.error)
            completion.resolve(None)

        target.lane.submit(rename, Work.SLOW, "take a future replica back").then(renamed)
        return completion

    def switch(self) -> PartitionLog:
        """Replace the old log by the renamed log in memory, and return the renamed log.

        The caller must use the renamed log in all places before it calls `go_on`.
        """
        current, source, target = self._current, self._source, self._target
        key = current.topic_partition
        log = target.future_logs.taken(key)
        assert log is self._future and key not in target.logs, f"{key} is in {target.path}"
        log.renamed(f"{target.path}/{names.directory_name(key)}")
        log.succeed(current)
        target.logs[key] = log
        target.moved_from[key] = self._moved_from
        source.moved_from.pop(key, None)
        return log

    def go_on(self) -> None:
        """Carry out held requests and planned appends on the new log, and delete the old log."""
        current, source, target = self._current, self._source, self._target
        log, held = self._future, self._held
        assert held is not None, "it has not begun"
        self.is_over = True
        held.make(log)
        log.submit_planned()
        key = log.topic_partition
        gone = source.delete(key)
        current.end_turn()
        # The `moved-from` file stays if it names other directories besides the source, because
        # those may still have older copies of the log.
        if len(target.moved_from[key].paths) == 1:
            gone.then(lambda done: None if done.error else target.forget_moved_from(key))

    def give_up(self) -> None:
        """Abandon the replacement: the current log continues, and the future log stays."""
        held = self._held
        if self.is_over or held is None:
            return
        self.is_over = True
        self._current.held = None
        held.make(self._current)
        self._current.end_turn()
