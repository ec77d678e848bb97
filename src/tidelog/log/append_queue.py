"""The queue of one log's appends, from their planning to their responses (DESIGN.md, rule 3).

One file operation writes all planned appends (`append_plan`), perhaps to several segments, because
a segment may roll in between. The operation runs on the directory's lane, its queue of file
operations. The queue applies the appends to the log when the write is done. After a short write,
the queue writes the remaining bytes, until the disk refuses a write. If a write fails, the queue
undoes the append and every append planned after it: offsets, producer state, leader epochs. After a
failed write, the queue removes the bytes that the write left at the end of the file. A log has at
most one write under way. All calls are on the event loop. This module follows the rules V31 (leader
epochs assigned while appends wait), V38, D1 and D17.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import Any

from tidelog.core.completion import Completion
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.limits import MAX_IOVECS
from tidelog.core.ports import Buffer, Files, Handle, Work
from tidelog.log.append_plan import AppendInfo, AppendPlan, NotFlushedError
from tidelog.log.flush import Flushes
from tidelog.log.index import MAX_RELATIVE_OFFSET
from tidelog.log.log_state import LogState
from tidelog.log.open_files import OpenFile
from tidelog.log.segment import Segment
from tidelog.log.segment_reads import RECENT_BYTES, LogSlice, Recent


def _not_flushed(error: BaseException, info: AppendInfo) -> BaseException:
    return NotFlushedError(error, info.sent) if isinstance(error, StorageError) else error


class WriteStep:
    """Consecutive appends to one file, from `position` on."""

    __slots__ = ("buffers", "create", "file", "position", "sync_names")

    def __init__(
        self, file: OpenFile, position: int, *, create: bool = False, sync_names: bool = False
    ) -> None:
        self.file = file
        self.position = position
        self.create = create
        #: Whether the directory must be synced before the new file is created, so that names of
        #: earlier segments are durable first.
        self.sync_names = sync_names
        self.buffers: list[Buffer] = []


class WriteOperation:
    """All steps of one write, submitted together as one file operation."""

    __slots__ = ("files_created", "plans_written", "steps")

    def __init__(self, steps: list[WriteStep]) -> None:
        self.steps = steps
        #: Number of appends that were written completely. If the operation succeeded, this is the
        #: number of all its appends.
        self.plans_written = 0
        #: Number of segment files that the operation created; they exist even if a later write
        #: failed.
        self.files_created = 0

    def __call__(self, files: Files) -> None:
        """Write all steps. Raises OSError; `plans_written` then counts the written appends."""
        for step in self.steps:
            file = step.file
            if step.sync_names:
                files.fsync_directory(file.path.rpartition("/")[0])
            handle = file.handle(files, create=step.create)
            if step.create or file.write_failed:
                files.truncate(handle, step.position)
                file.write_failed = False
            if step.create:
                self.files_created += 1
            try:
                self._write(files, handle, step)
            except OSError:
                file.write_failed = True
                raise

    def _write(self, files: Files, handle: Handle, step: WriteStep) -> None:
        buffers = step.buffers
        position = step.position
        if len(buffers) == 1:
            written = files.pwritev(handle, buffers, position)
            if written < len(buffers[0]):
                _write_rest(files, handle, buffers[0], written, position)
            self.plans_written += 1
            return
        done = 0
        while done < len(buffers):
            part = buffers[done : done + MAX_IOVECS]
            written = files.pwritev(handle, part, position)
            for buffer in part:
                size = len(buffer)
                if written < size:
                    _write_rest(files, handle, buffer, written, position)
                    written = size
                written -= size
                position += size
                done += 1
                self.plans_written += 1
                if not written:
                    break


def _write_rest(files: Files, handle: Handle, buffer: Buffer, written: int, position: int) -> None:
    """Continue a short write. Raises OSError if the disk refuses the remaining bytes."""
    view = memoryview(buffer)
    while written < len(view):
        written += files.pwritev(handle, [view[written:]], position + written)


def remove_failed_write(file: OpenFile, size_bytes: int, files: Files) -> None:
    """Remove the bytes that a failed write may have left at the end. Raises OSError."""
    files.truncate(file.handle(files), size_bytes)
    file.write_failed = False


@dataclass(slots=True, eq=False)
class _AwaitedFlush:
    """Written appends that complete after one flush, in the order of their offsets."""

    #: Appends that complete only after the flush, and fail if the flush fails.
    plans: deque[AppendPlan]
    #: Appends that need no flush, and wait only because the appends before them wait for this
    #: flush.
    behind: deque[AppendPlan] = field(default_factory=deque)


#: The segment to which one write step writes, and the plans whose batches the step writes.
_Group = tuple[Segment, list[AppendPlan]]


class AppendQueue:
    """The appends of one log."""

    __slots__ = (
        "_assigned_epochs",
        "_awaited",
        "_being_written",
        "_flush_failed_below",
        "_flushes",
        "_log",
    )

    def __init__(self, log: LogState, flushes: Flushes) -> None:
        self._log = log
        self._flushes = flushes
        self._being_written: list[AppendPlan] = []
        #: Flushes that must end before written appends complete, in order.
        self._awaited: deque[_AwaitedFlush] = deque()
        #: The end offset of the last append that failed because its flush failed.
        self._flush_failed_below = 0
        #: Leader epochs (epoch, start offset) that were assigned to the log while it had planned
        #: appends.
        self._assigned_epochs: list[tuple[int, int]] = []

    def epoch_assigned(self, epoch: int, start_offset: int) -> None:
        """Note a leader epoch assigned to the log; an undo of planned appends must keep it."""
        if self._log.planned or self._being_written:
            self._assigned_epochs.append((epoch, start_offset))

    def take_over(self, former: AppendQueue) -> None:
        """Take over the planned appends of the log that this log replaces."""
        log, before = self._log, former._log
        assert not log.planned and not former._being_written, f"{log.path} is at work"
        log.planned, before.planned = before.planned, []
        log.is_write_wanted, before.is_write_wanted = before.is_write_wanted, False
        self._assigned_epochs, former._assigned_epochs = former._assigned_epochs, []

    def refuse_planned(self, error: KafkaError) -> None:
        """Fail the planned appends, except the appends that are being written."""
        failed, self._log.planned = self._log.planned, []
        self._take_back(failed, error.code)
        for plan in failed:
            plan.completion.fail(error)

    def __call__(self) -> None:
        """Write all planned appends, then let the log's next waiting operation begin."""
        log = self._log
        plans = self._being_written = log.planned
        log.planned = []
        log.is_write_wanted = False
        operation, groups = self._write_operation(plans)
        directory = log.directory
        pin = directory.open_files.pin
        for step in operation.steps:
            pin(step.file)
        # If any step of the operation syncs the directory, the last step does. The last step
        # therefore decides which kind of work the operation is.
        work = Work.SYNC if operation.steps[-1].sync_names else Work.FAST
        completion = directory.lane.submit(operation, work, "append")
        if completion.done:
            self._written(operation, groups, completion)
        else:
            completion.then(lambda done: self._written(operation, groups, done))

    def _write_operation(self, plans: list[AppendPlan]) -> tuple[WriteOperation, list[_Group]]:
        """Divide planned appends into write steps, one per segment, the active segment first."""
        log = self._log
        config = log.config
        segment = log.segments[-1]
        position = segment.size_bytes
        step = WriteStep(segment.file, position)
        steps = [step]
        groups: list[_Group] = [(segment, [])]
        for plan in plans:
            info = plan.info
            if segment.must_roll(
                config, position, info.size_bytes, info.last_offset, plan.max_timestamp_ms,
                plan.now_ms,
            ):  # fmt: skip
                segment = Segment(log.path, _first_offset(plan), plan.now_ms)
                position = 0
                # If one operation creates two segments, the first segment's name must become
                # durable before the second segment is created.
                sync_names = len(steps) > 1 or log.names_unsynced
                step = WriteStep(segment.file, 0, create=True, sync_names=sync_names)
                steps.append(step)
                groups.append((segment, []))
            step.buffers.append(plan.buffer)
            groups[-1][1].append(plan)
            position += info.size_bytes
        return WriteOperation(steps), groups

    def _written(
        self, operation: WriteOperation, groups: list[_Group], completion: Completion[None]
    ) -> None:
        """Apply the written appends, even if the write failed later, and complete all appends."""
        log = self._log
        directory = log.directory
        unpin = directory.open_files.unpin
        for step in operation.steps:
            unpin(step.file)
        error = completion.error
        plans = self._being_written
        left = operation.plans_written
        created = operation.files_created
        now_ms = directory.clock.wall_ms()
        for segment, group in groups:
            if segment is not log.segments[-1]:
                if not created:
                    break
                created -= 1
                self.rolled(segment)
            written = group if error is None else group[:left]
            if written:  # `written` is empty for the active segment if the first append rolled it
                segment.last_modified_ms = now_ms
            for plan in written:
                self._apply(plan)
            left -= len(written)
        done = plans if error is None else plans[: operation.plans_written]
        if len(done) == 1:
            directory.space.wrote(done[0].info.size_bytes)
            directory.recent = _recent(log, done[0]) if directory.recent_wanted else None
        else:
            directory.space.wrote(sum([plan.info.size_bytes for plan in done]))
            directory.recent = None
        self._being_written = []
        failed: list[AppendPlan] = []
        if error is not None:
            failed = plans[operation.plans_written :] + log.planned
            log.planned = []
            self._take_back(failed, ErrorCode.KAFKA_STORAGE_ERROR)
        elif not log.planned:
            self._assigned_epochs.clear()
        self._answer(done)
        if error is not None:
            directory.failed(error)
            if log.active_segment.file.write_failed:
                self._remove_failed_write()
            for plan in failed:
                plan.completion.fail(error)
        log.end_turn()

    def rolled(self, segment: Segment) -> None:
        """Make a new segment active, because its file was created; flush the previous segment."""
        log = self._log
        log.add_segment(segment)
        log.new_snapshots[segment.base_offset] = self.producers_at(segment.base_offset)
        log.directory.tracer.event(
            "log_rolled", partition=str(log.topic_partition), base_offset=segment.base_offset
        )
        self._flushes.start_for_roll()

    def _apply(self, plan: AppendPlan) -> None:
        log = self._log
        segment = log.segments[-1]
        interval = log.config.index_interval_bytes
        for base_offset, last_offset, size_bytes, max_timestamp_ms in plan.batches:
            log.batch_starts.add(base_offset, segment.size_bytes)
            segment.note_batch(last_offset, size_bytes, max_timestamp_ms, interval)
        log.size_bytes += plan.info.size_bytes
        end = log.log_end_offset
        assert plan.start_offset == end, f"{log.path} ends at {end}, written {plan.start_offset}"
        if end == log.recovery_point:
            log.oldest_unflushed_ms = plan.now_ms
        log.log_end_offset = plan.info.last_offset + 1

    def _answer(self, plans: list[AppendPlan]) -> None:
        """Complete written appends in order; flush first if too many records are unflushed."""
        log = self._log
        if plans and log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            awaited = _AwaitedFlush(deque(plans))
            self._awaited.append(awaited)
            self._flushes.start().then(lambda done: self._flushed(awaited, done))
        elif self._awaited:
            self._awaited[-1].behind += plans
        else:
            for plan in plans:
                plan.completion.resolve(plan.info)

    def _flushed(self, awaited: _AwaitedFlush, done: Completion[None]) -> None:
        plans, behind = awaited.plans, awaited.behind
        while plans:
            plan = plans.popleft()
            if done.error is not None:
                self._flush_failed_below = max(self._flush_failed_below, plan.info.last_offset + 1)
                plan.completion.fail(_not_flushed(done.error, plan.info))
            else:
                plan.completion.resolve(plan.info)
        while behind:
            plan = behind.popleft()
            plan.completion.resolve(plan.info)
        self._awaited.remove(awaited)

    def repeated(self, original: AppendInfo) -> Completion[AppendInfo]:
        """Return a duplicate's completion, which becomes done when the original batch is written.

        If the flush that the original batch required failed, the duplicate requires a flush,
        too.
        """
        unflushed = [plan for each in self._awaited for plan in (*each.plans, *each.behind)]
        for plan in (*unflushed, *self._being_written, *self._log.planned):
            if plan.info.last_offset == original.last_offset:
                return _after(plan.completion, original, lambda error: error)
        if self._log.recovery_point <= original.last_offset < self._flush_failed_below:
            flush = self._flushes.start()
            return _after(flush, original, lambda error: _not_flushed(error, original))
        return Completion.of(original)

    def _take_back(self, plans: list[AppendPlan], error: ErrorCode) -> None:
        """Undo the planned appends `plans`, the newest of the log, from the newest to the oldest.

        Producers get `error`, and the log expects them to resend their batches.
        """
        if not plans:
            return
        log = self._log
        assert log.next_offset == plans[-1].info.last_offset + 1, f"{log.path}: not the last plans"
        now_ms = log.directory.clock.monotonic_ms()
        for plan in reversed(plans):
            for undo in reversed(plan.undos):
                log.producers.take_back(undo, error, now_ms)
        log.next_offset = plans[0].start_offset
        before = next((p.epochs_before for p in plans if p.epochs_before is not None), None)
        if before is not None:
            log.epochs.clear()
            for epoch, start_offset in before:
                log.epochs.assign(epoch, start_offset)
        for epoch, start_offset in self._assigned_epochs:
            log.epochs.assign(epoch, min(start_offset, log.next_offset))
        self._assigned_epochs.clear()

    def _remove_failed_write(self) -> None:
        """Before the log's next operation, remove the bytes that a failed write left."""
        log = self._log

        def start() -> None:
            segment = log.active_segment
            file = segment.file
            size = segment.size_bytes
            log.directory.open_files.pin(file)

            def done(completion: Completion[None]) -> None:
                log.directory.open_files.unpin(file)
                if completion.error is not None:
                    # The bytes could not be removed. If this error does not fail the directory, the
                    # log's next write first removes them.
                    log.directory.failed(completion.error)
                log.end_turn()

            lane = log.directory.lane
            lane.submit(
                lambda files: remove_failed_write(file, size, files), Work.FAST, "cut back"
            ).then(done)

        log.take_next_turn(start)

    def producers_at(self, offset: int) -> bytes:
        """Return a producer snapshot without planned appends that begin at or beyond `offset`."""
        log = self._log
        producers = log.producers
        later = [p for p in (*self._being_written, *log.planned) if p.info.base_offset >= offset]
        if any(plan.undos for plan in later):
            producers = producers.copy()
            for plan in reversed(later):
                for undo in reversed(plan.undos):
                    producers.undo(undo)
        return producers.to_snapshot()


def _after(
    awaited: Completion[Any],
    info: AppendInfo,
    failure: Callable[[BaseException], BaseException],
) -> Completion[AppendInfo]:
    """Return a completion that gets the value `info` when `awaited` is done; if `awaited` fails,
    the returned completion fails with `failure(error)`.
    """
    completion: Completion[AppendInfo] = Completion()

    def settle(done: Completion[Any]) -> None:
        if done.error is not None:
            completion.fail(failure(done.error))
        else:
            completion.resolve(info)

    awaited.then(settle)
    return completion


def _first_offset(plan: AppendPlan) -> int:
    """Return the base offset of a segment that begins with `plan`.

    If a gap in the offsets precedes the planned append, the segment begins with the gap, so that
    there is no gap between segments. If a gap in the offsets is too large for a segment's index,
    the segment begins after the gap.
    """
    if plan.info.last_offset - plan.start_offset > MAX_RELATIVE_OFFSET:
        return plan.info.base_offset
    return plan.start_offset


def _recent(log: LogState, plan: AppendPlan) -> Recent | None:
    """Copy the append that was just written, so that followers at the log end can read the copy.

    The caller calls this function only if a recent read in this directory reached a log end.
    Returns None if the append is too large for a copy in memory.
    """
    info, directory = plan.info, log.directory
    if info.size_bytes > RECENT_BYTES:
        return None
    directory.recent_wanted -= 1
    segment = log.segments[-1]
    written = LogSlice(
        bytes(plan.buffer),
        info.base_offset,
        info.last_offset + 1,
        segment.size_bytes,
        base_offset=segment.base_offset,
    )
    return Recent(log, written)
