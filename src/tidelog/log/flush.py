"""The flush of a log up to an offset, which advances the recovery point.

A crash may come between any two steps of a flush, so the order of the steps matters. The flush
first syncs the records. Next, the flush writes the indexes and producer snapshots of rolled
segments and the leader epochs. Last, the flush syncs the directory, which makes the names of files
durable. The recovery point may rise only after the last step of the flush, because recovery does
not check files below the recovery point (V39). A failed fsync is an error of the device and is
never retried (D17).
"""

from __future__ import annotations

from dataclasses import field
from errno import ECANCELED

from tidelog.core.completion import Completion
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import StorageError
from tidelog.core.ports import Files, Work
from tidelog.log import names
from tidelog.log.checkpoints import LEADER_EPOCHS, format_leader_epochs
from tidelog.log.directory_files import PARTITION_METADATA, format_partition_metadata
from tidelog.log.log_state import LogState
from tidelog.log.open_files import OpenFile
from tidelog.log.segment import Segment
from tidelog.log.segment_files import index_files


@dataclass(slots=True)
class FlushOperation:
    """The file operation of one flush: the files that must reach the disk, as they were when the
    flush was requested.
    """

    directory: str
    logs: list[OpenFile]
    #: (path, new content) of the small files to replace: index files, producer snapshots, the
    #: leader-epoch checkpoint and partition.metadata.
    replacements: list[tuple[str, bytes]] = field(default_factory=list)
    sync_directory: bool = False

    def __call__(self, files: Files) -> None:
        """Sync the log files, and replace the small files of the flush. Raises OSError."""
        for log in self.logs:
            files.fsync(log.handle(files))
        for path, data in self.replacements:
            files.replace_file(path, data, sync=True)
        if self.sync_directory:
            files.fsync_directory(self.directory)


class Flushes:
    """The flushes of one log, one at a time; requests made during a flush share the next flush."""

    __slots__ = ("_idle", "_log", "_next", "_running")

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._running: Completion[None] | None = None
        self._next: Completion[None] | None = None
        self._idle: list[Completion[None]] = []

    @property
    def is_settled(self) -> bool:
        """Whether no flush is under way or waiting."""
        return self._running is None and self._next is None

    def start(self) -> Completion[None]:
        """Flush up to the current log end."""
        log = self._log
        if log.held is not None:
            return log.held.later(lambda going_on: going_on.flush())
        if log.directory.failure is not None:
            return Completion.failed(log.directory.failure)
        if self._running is not None or log.is_truncating:
            if self._next is None:
                self._next = Completion()
            return self._next
        return self._run(log.log_end_offset)

    def at_close(self) -> list[tuple[str, bytes]]:
        """Return (path, content) of the files that must be replaced before the log is closed.

        After this call, the log counts the returned files as replaced. The caller must replace the
        files and sync the volume before writing a checkpoint that relies on them.
        """
        log = self._log
        assert self._running is None and not log.is_truncating, f"{log.path} is still at work"
        operation, sealing, snapshots = self._capture(log.log_end_offset)
        log.truncation_unsynced = log.metadata_unsynced = log.names_changed = log.epochs.changed = (
            False
        )
        self._apply(log.log_end_offset, sealing, snapshots)
        return operation.replacements

    def start_for_roll(self) -> None:
        """Flush a segment that has just rolled, now or as part of the next waiting flush."""
        if self._running is None and not self._log.is_truncating:
            self._run(self._log.active_segment.base_offset)
        elif self._next is None:
            self._next = Completion()

    def resume(self) -> None:
        """Start the flush that had to wait for a truncation or for another flush.

        If the log was closed while the flush waited, the flush fails, because the log's files may
        have been renamed (V35).
        """
        waiting = self._next
        if waiting is None or self._running is not None or self._log.is_truncating:
            return
        self._next = None
        if self._log.is_closed:
            waiting.fail(self._closed_error())
            return

        def settle(done: Completion[None]) -> None:
            if done.error is not None:
                waiting.fail(done.error)
            else:
                waiting.resolve(None)

        self.start().then(settle)

    def _closed_error(self) -> StorageError:
        log = self._log
        return StorageError(
            log.directory.path, "flush", log.path, ECANCELED, log.directory.clock.wall_ms(),
            "the log was closed meanwhile",
        )  # fmt: skip

    def idle(self) -> Completion[None]:
        """Return a completion that is done when the flush under way ends."""
        if self._running is None:
            return Completion.of(None)
        idle: Completion[None] = Completion()
        self._idle.append(idle)
        return idle

    def _run(self, target: int) -> Completion[None]:
        log = self._log
        operation, sealing, snapshots = self._capture(target)
        if not operation.logs and not operation.replacements and not operation.sync_directory:
            log.recovery_point = max(log.recovery_point, target)
            return Completion.of(None)
        completion: Completion[None] = Completion()
        self._running = completion
        truncation_unsynced, log.truncation_unsynced = log.truncation_unsynced, False
        epochs_were_changed, log.epochs.changed = log.epochs.changed, False
        metadata_unsynced, log.metadata_unsynced = log.metadata_unsynced, False
        log.names_syncing, log.names_changed = log.names_changed, False
        for file in operation.logs:
            log.directory.open_files.pin(file)

        def flushed(done: Completion[None]) -> None:
            for file in operation.logs:
                log.directory.open_files.unpin(file)
            self._running = None
            if done.error is not None:
                log.epochs.changed |= epochs_were_changed
                log.metadata_unsynced |= metadata_unsynced
                log.names_changed |= log.names_syncing
                log.truncation_unsynced |= truncation_unsynced
                log.directory.failed(done.error)
            else:
                self._apply(target, sealing, snapshots)
            log.names_syncing = False
            self._finish(completion, done)

        log.directory.lane.submit(operation, self._work(operation), "flush").then(flushed)
        return completion

    def _work(self, operation: FlushOperation) -> Work:
        """Return the kind of work by which the directory's queue schedules a flush.

        A flush for which producers wait runs in parallel with flushes of other logs. A flush that
        replaces files runs in order with the other operations on the directory.
        """
        changes_names = operation.replacements or operation.sync_directory
        if self._log.config.flush_before_ack and not changes_names:
            return Work.SYNC
        return Work.SLOW

    def _finish(self, completion: Completion[None], done: Completion[None]) -> None:
        idle, self._idle = self._idle, []
        if done.error is not None:
            completion.fail(done.error)
        else:
            completion.resolve(None)
        for waiting in idle:
            waiting.resolve(None)
        self.resume()

    def _apply(self, target: int, sealing: list[Segment], snapshots: list[int]) -> None:
        """Raise the recovery point and mark the flushed segments as sealed.

        The state that `_capture` collected is still valid, because truncations wait for the flush
        under way.
        """
        log = self._log
        # After a roll, the new segment may begin above the log end, because a gap in the offsets
        # precedes it; the log end rises when the segment's first append is applied.
        end = max(log.log_end_offset, log.base_offsets[-1])
        assert target <= end, f"{log.path}: flushed up to {target}, the log ends at {end}"
        log.recovery_point = max(log.recovery_point, target)
        for segment in sealing:
            segment.sealed = True
            log.directory.indexes.used(segment)
        for offset in snapshots:
            log.new_snapshots.pop(offset, None)
            if offset not in log.snapshots:
                log.snapshots.append(offset)
        log.snapshots.sort()

    def _capture(self, target: int) -> tuple[FlushOperation, list[Segment], list[int]]:
        """Collect everything that must be durable before the recovery point may rise to
        `target`.
        """
        log = self._log
        active = log.active_segment
        sealing = [s for s in log.segments if not s.sealed and s is not active]
        operation = FlushOperation(log.path, [segment.file for segment in sealing])
        if log.truncation_unsynced or target > max(active.base_offset, log.recovery_point):
            operation.logs.append(active.file)
        replacements = operation.replacements
        for segment in sealing:
            replacements += index_files(segment)
        snapshots = [offset for offset in log.new_snapshots if offset <= target]
        for offset in snapshots:
            path = f"{log.path}/{names.offset_name(offset, names.SNAPSHOT)}"
            replacements.append((path, log.new_snapshots[offset]))
        if log.epochs.changed:
            entries = log.epochs.entries()
            replacements.append((f"{log.path}/{LEADER_EPOCHS}", format_leader_epochs(entries)))
        if log.metadata_unsynced:
            data = format_partition_metadata(log.topic_id)
            replacements.append((f"{log.path}/{PARTITION_METADATA}", data))
        operation.sync_directory = log.names_changed
        return operation, sealing, snapshots
