"""The log of one partition: plans appends, has them written, reads, cuts, flushes.

An append has three steps (DESIGN.md, rule 3): `plan_*` checks it and gives it offsets at once,
`submit_planned` has all planned ones written together, and when that is done they are applied
(`append_queue`). `next_offset` is what the next plan gets, `log_end_offset` what is written: only
below it anything is read or counts.

One operation that changes files is under way per log; truncations and rolls queue behind it.
Loop only. Knows nothing of replication: who leads and what is committed is its owner's business.
Rules V31 (no file operation in `assign_epoch`), V38, V39, D1, D17.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.core.completion import Completion
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.ports import Buffer
from tidelog.core.types import TopicId, TopicPartition
from tidelog.log import cutting, flush, lookups, names, reading, retention
from tidelog.log.append_queue import AppendQueue
from tidelog.log.append_validation import (
    Checked,
    check_on_loop,
    check_on_thread,
    plan_from_client,
    plan_from_leader,
)
from tidelog.log.appends import AppendInfo, BatchStarts, Plan
from tidelog.log.config import LogConfig
from tidelog.log.producer_state import ProducerState
from tidelog.log.reading import LogSlice
from tidelog.log.segment import Segment

if TYPE_CHECKING:
    from tidelog.log.directory import LogDirectory

__all__ = ["AppendInfo", "LogSlice", "PartitionLog"]

T = TypeVar("T")


class _Turn(NamedTuple):
    """An operation of this log that waits for the one under way."""

    start: Callable[[], None]
    #: Whether everything planned before must be written first.
    after_queue: bool


class PartitionLog:
    """One replica's log. Made by its LogDirectory only. There are ten thousand of these: what is
    empty nearly always is a list (56 bytes), never a deque (760)."""

    __slots__ = (
        "_appends",
        "_busy",
        "_closed",
        "_truncating",
        "_turns",
        "base_offsets",
        "batch_starts",
        "closed_state",
        "config",
        "cut_unsynced",
        "directory",
        "epochs",
        "flushes",
        "log_end_offset",
        "log_start_offset",
        "metadata_unsynced",
        "names_changed",
        "new_snapshots",
        "next_offset",
        "oldest_unflushed_ms",
        "path",
        "pending_cut",
        "producers",
        "read_ends",
        "recovery_point",
        "segments",
        "size_bytes",
        "snapshots",
        "topic_id",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerState,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        #: All zeros where the directory does not tell.
        self.topic_id = topic_id
        #: May be replaced at any time; holds from the next append on.
        self.config = config
        self.path = f"{directory.path}/{names.directory_name(topic_partition)}"
        #: Oldest first, never empty; only the last one is written.
        self.segments = segments
        self.base_offsets = [segment.base_offset for segment in segments]
        #: First offset that may be read.
        self.log_start_offset = log_start_offset
        #: Offset that the next planned record gets.
        self.next_offset = log_end_offset
        #: Offset after the last written record.
        self.log_end_offset = log_end_offset
        #: Everything below is on the disk.
        self.recovery_point = recovery_point
        self.epochs = epochs
        self.producers = producers
        #: Bytes of all segments.
        self.size_bytes = sum(segment.size_bytes for segment in segments)
        #: Offsets of the producer snapshots on disk, rising, and those still to be written.
        self.snapshots: list[int] = []
        self.new_snapshots: dict[int, bytes] = {}
        #: Files were made, renamed or removed since the directory was last made durable.
        self.names_changed = False
        #: The active segment was cut and not made durable since.
        self.cut_unsynced = False
        #: Wall clock of the first append after the last flush began.
        self.oldest_unflushed_ms = 0
        #: (truncations, log end) for which indexes and snapshot are on disk: nothing to close.
        self.closed_state: tuple[int, int] | None = None
        #: Whether `partition.metadata` may not have reached the disk.
        self.metadata_unsynced = False
        #: Where a truncation under way will end the log: nothing may be claimed beyond.
        self.pending_cut: int | None = None
        #: Grows with every truncation: what began before one must not end as if it had not been.
        self.truncations = 0
        self.batch_starts = BatchStarts()
        #: Where reads ended: offset -> (base offset of the segment, position).
        self.read_ends: dict[int, tuple[int, int]] = {}
        self.flushes = flush.Flushes(self)
        self._appends = AppendQueue(self)
        self._busy = False
        self._turns: list[_Turn] = []
        #: Truncations that wait or run: nothing can be planned meanwhile.
        self._truncating = 0
        #: Why nothing more may be done here: deleted, set aside, directory closed.
        self._closed = ""

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"
        )

    @property
    def active_segment(self) -> Segment:
        """The segment that is written."""
        return self.segments[-1]

    # appending

    def check_on_thread(self, records: Buffer) -> Completion[Checked]:
        """Check what a client sent where the loop need not wait for it; for `plan_leader_append`.
        The completion's error is a KafkaError."""
        return check_on_thread(self, records)

    def plan_leader_append(
        self,
        records: Buffer,
        leader_epoch: int,
        now_ms: int,
        checked: Checked | None = None,
    ) -> Completion[AppendInfo]:
        """Check what a client sent, give it offsets and the leader epoch, and queue it.

        `records` is one batch; it is patched in place where it is writable, and must stay valid
        until the completion is done. `now_ms` is the wall clock. Raises KafkaError, with nothing
        changed, for what is refused: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE; NOT_LEADER_OR_FOLLOWER while the log is being cut or is gone;
        StorageError when the directory has failed. The completion's error is a StorageError.
        Raises CostlyBatch where the check is for `check_on_thread`, and is not `checked` yet.

        What an idempotent producer repeats is not written again: the completion tells the
        original's offsets, as soon as the original is written (V38).
        """
        self._check_open()
        found = check_on_loop(self, records) if checked is None else checked
        plan_or_original = plan_from_client(self, found, leader_epoch, now_ms)
        if isinstance(plan_or_original, Plan):
            self._appends.planned.append(plan_or_original)
            return plan_or_original.completion
        return self._appends.repeated(plan_or_original)

    def plan_follower_append(self, records: Buffer) -> Completion[AppendInfo]:
        """Queue batches as the leader gave them; a partial one at the end is left off.

        None may lie below `next_offset`; gaps are what compaction has left on the leader. Raises
        KafkaError, with nothing changed: CORRUPT_MESSAGE for what is no batch or fails its CRC,
        OFFSET_OUT_OF_RANGE for other offsets; otherwise as `plan_leader_append`. The memory must
        stay valid until the completion is done.
        """
        self._check_open()
        plan = plan_from_leader(self, records)
        if plan is None:
            return Completion.of(AppendInfo(self.next_offset, self.next_offset - 1, -1, 0, 0, -1))
        self._appends.planned.append(plan)
        if plan.has_gap and not self.config.compact_enabled:
            plan.completion.then(lambda _: self._settle_gaps())
        return plan.completion

    def configured(self, config: LogConfig) -> None:
        """The topic's configuration may have changed."""
        was_compacted, self.config = self.config.compact_enabled, config
        if was_compacted and not config.compact_enabled:
            self._settle_gaps()

    def _settle_gaps(self) -> None:
        """Have it on disk that all of the log was flushed: of a log that was compacted in earlier
        days only, recovery would take gaps beyond the recovery point for losses."""

        def flushed(done: Completion[None]) -> None:
            if done.error is None:
                self.directory.checkpoint()

        if not self.is_closed:
            self.flush().then(flushed)

    def submit_planned(self) -> None:
        """Have everything planned so far written; completions are resolved when it is.

        On a quick disk that is before this call returns; while an earlier operation of this log is
        under way, it is when that one is done.
        """
        appends = self._appends
        if self._busy:
            appends.is_wanted = True
        elif appends.planned:
            self._busy = True
            appends.write()

    def rolled(self, segment: Segment) -> None:
        """A new segment's file was made: write there from now on, make the old one durable."""
        self.segments.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.batch_starts.clear()
        self.names_changed = True
        self.new_snapshots[segment.base_offset] = self._appends.producers_at(segment.base_offset)
        self.directory.tracer.event(
            "log_rolled", partition=str(self.topic_partition), base_offset=segment.base_offset
        )
        self.flushes.start_for_roll()

    # turns: one operation at a time

    def take_turn(self, start: Callable[[], None], *, after_queue: bool) -> None:
        """Run `start` when no other operation of this log is under way; it ends with `end_turn`."""
        self._turns.append(_Turn(start, after_queue))
        if not self._busy:
            self._next_turn()

    def take_next_turn(self, start: Callable[[], None]) -> None:
        """Run `start` before anything else of this log, when what is under way is done."""
        self._turns.insert(0, _Turn(start, after_queue=False))

    def end_turn(self) -> None:
        """The operation under way is done and applied."""
        self._busy = False
        self._next_turn()

    def _next_turn(self) -> None:
        while not self._busy:
            turns, appends = self._turns, self._appends
            if turns and not (turns[0].after_queue and appends.planned):
                self._busy = True
                turns.pop(0).start()
            elif appends.planned and (turns or appends.is_wanted):
                self.submit_planned()
            else:
                return

    def _check_open(self) -> None:
        if self.directory.failure is not None:
            raise self.directory.failure
        if self._closed or self._truncating:
            why = self._closed or "it is being truncated"
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the log of {self.topic_partition} takes nothing: {why}",
            )

    # reading

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool
    ) -> Completion[LogSlice]:
        """Whole batches from the one that contains `offset` on, below `end_offset` (exclusive).

        At most `max_bytes`, but with `min_one_batch` at least one batch if there is one. Done at
        once where the page cache has it. Raises KafkaError: OFFSET_OUT_OF_RANGE outside of log
        start and log end. The completion's error is a StorageError, or a KafkaError:
        CORRUPT_MESSAGE where the file does not hold what was written.
        """
        return reading.read(self, offset, max_bytes, end_offset, min_one_batch)

    def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: int
    ) -> Completion[tuple[int, int, int] | None]:
        """(timestamp, offset, leader epoch) of the first record at or after that time.

        None where there is none below `end_offset`.
        """
        return lookups.offset_for_timestamp(self, timestamp_ms, end_offset)

    def max_timestamp(self) -> Completion[tuple[int, int, int] | None]:
        """(timestamp, offset, leader epoch) of the first record with the largest timestamp."""
        return lookups.max_timestamp(self)

    # leadership, cutting, flushing, retention

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """This replica leads from `start_offset` on under `epoch`; no file operation (V31, V39)."""
        self.epochs.assign(epoch, start_offset)
        self._appends.epoch_assigned(epoch, start_offset)

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation waits or runs; nothing can be planned meanwhile."""
        return self._truncating > 0

    def truncate_to(self, offset: int) -> Completion[None]:
        """Cut off everything at or beyond `offset`, after what was planned before.

        Nothing to do when `offset` is at or beyond the log's end. A batch that contains `offset`
        goes whole, so the log may end below it. Producer state and leader epochs go back with the
        records (V38); the high watermark is the owner's to lower.
        """
        return self._truncate(lambda done: cutting.truncate_to(self, offset, done))

    def truncate_fully_and_start_at(self, offset: int) -> Completion[None]:
        """Drop everything; the next record gets `offset` (V67)."""
        return self._truncate(lambda done: cutting.truncate_fully(self, offset, done))

    def _truncate(self, start: Callable[[Completion[None]], None]) -> Completion[None]:
        if self._closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log is {self._closed}")
        completion: Completion[None] = Completion()
        done: Completion[None] = Completion()

        def finish(_: Completion[None]) -> None:
            self._truncating -= 1
            self.pending_cut = None
            self.end_turn()
            self.flushes.resume()
            if done.error is not None:
                self.directory.failed(done.error)
                completion.fail(done.error)
            else:
                completion.resolve(None)

        done.then(finish)
        self._truncating += 1
        self.take_turn(lambda: self.flushes.idle().then(lambda _: start(done)), after_queue=True)
        return completion

    def reset_ends(self, log_end_offset: int) -> None:
        """The log was cut: it ends here, and what was remembered of its end is void."""
        self.truncations += 1
        self.cut_unsynced = True
        self.log_end_offset = self.next_offset = log_end_offset
        self.log_start_offset = min(self.log_start_offset, log_end_offset)
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.epochs.truncate_from_end(log_end_offset)
        self.base_offsets = [segment.base_offset for segment in self.segments]
        self.size_bytes = sum(segment.size_bytes for segment in self.segments)
        self.batch_starts.clear()
        self.read_ends.clear()
        self.snapshots = [offset for offset in self.snapshots if offset <= log_end_offset]
        for offset in [offset for offset in self.new_snapshots if offset > log_end_offset]:
            del self.new_snapshots[offset]
        self.names_changed = True

    def drop_oldest(self, count: int) -> None:
        """The oldest segments are not part of the log any more; their files are the caller's."""
        for segment in self.segments[:count]:
            self.directory.open_files.forget(segment.file)
            self.directory.indexes.forget(segment)
            self.size_bytes -= segment.size_bytes
        del self.segments[:count], self.base_offsets[:count]
        start = self.base_offsets[0]
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.epochs.truncate_from_start(start)
        self.directory.tracer.event(
            "log_segments_deleted", partition=str(self.topic_partition), segments=count,
            log_start_offset=self.log_start_offset,
        )  # fmt: skip

    def flush(self) -> Completion[None]:
        """Make everything written so far durable, then move the recovery point (V39).

        What is planned, or written while the flush is under way, is not part of it: whoever wants
        the log's end to be durable awaits the appends first. The completion's error is a
        StorageError; after a failed fsync the directory has failed for good (D17).
        """
        return self.flushes.start()

    def enforce_retention(self, now_ms: int, high_watermark: int) -> Completion[int]:
        """Remove segments that are wholly below `high_watermark` and too old or too many.

        Returns how many; moves `log_start_offset`. `now_ms` is the wall clock.
        """
        return retention.enforce(self, now_ms, high_watermark)

    def advance_log_start(self, offset: int) -> bool:
        """Records below `offset` are not to be read any more; returns whether that is news.

        Files go with the next retention. Raises KafkaError OFFSET_OUT_OF_RANGE above the log end.
        """
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"log start {offset} is beyond the log end {self.log_end_offset}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    # ending

    def close(self, why: str) -> Completion[None]:
        """Take nothing more; done when no operation of this log is under way.

        What was planned and not submitted fails with KafkaError NOT_LEADER_OR_FOLLOWER.
        """
        self._closed = why
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log is {why}")
        self._appends.refuse_planned(error)
        completion: Completion[None] = Completion()

        def start() -> None:
            def quiet(_: Completion[None]) -> None:
                self.end_turn()
                completion.resolve(None)

            self.flushes.idle().then(quiet)

        self.take_turn(start, after_queue=False)
        return completion

    @property
    def is_closed(self) -> bool:
        """Whether nothing more may be done here."""
        return bool(self._closed)

    def break_off(self, why: str) -> None:
        """The log can take nothing more: its state is not known."""
        self._closed = f"broken: {why}"

    def replaced(self, old: list[Segment], new: Segment) -> None:
        """Compaction has put `new` in the place of `old`, segments side by side."""
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = [new]
        self.base_offsets = [segment.base_offset for segment in self.segments]
        self.size_bytes += new.size_bytes - sum(segment.size_bytes for segment in old)
        for segment in old:
            self.directory.open_files.forget(segment.file)
            self.directory.indexes.forget(segment)
        self.directory.indexes.used(new)
        # Positions in the old files.
        self.read_ends.clear()
        merged = self.base_offsets[first + 1]
        self.snapshots = [
            offset for offset in self.snapshots if not new.base_offset < offset < merged
        ]
        self.names_changed = True

    def forget_files(self) -> None:
        """Close the files as soon as nobody reads them any more."""
        for segment in self.segments:
            self.directory.open_files.forget(segment.file)
            self.directory.indexes.forget(segment)
