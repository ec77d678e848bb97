"""The log of one partition: planning and writing of appends, reads, truncations and flushes.

An append has three steps (DESIGN.md, rule 3). `plan_*` checks the append and assigns its offsets at
once. `submit_planned` writes all planned appends together. After the write, `append_queue` applies
the appends. `next_offset` is the offset of the next planned append. `log_end_offset` is the offset
after the last written record; only records below `log_end_offset` can be read.

`PartitionLog` offers the operations of `append_validation`, `append_queue`, `log_reads`, `flush`,
`retention` and `truncation` on one log's state (`log_state`). All calls are on the event loop. The
log does not deal with replication: the caller knows the leader and the high watermark. This module
follows the rules V31 (no file operation in `assign_epoch`), V38, V39, D1 and D17.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.core.completion import Completion
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.ports import Buffer
from tidelog.core.types import TopicId, TopicPartition
from tidelog.log import log_reads, retention, truncation
from tidelog.log.append_plan import AppendInfo, AppendPlan
from tidelog.log.append_queue import AppendQueue
from tidelog.log.append_validation import (
    Checked,
    check_on_loop,
    check_on_thread,
    plan_from_client,
    plan_from_leader,
)
from tidelog.log.config import LogConfig
from tidelog.log.directory_state import DirectoryState
from tidelog.log.flush import Flushes
from tidelog.log.held_requests import HeldRequests
from tidelog.log.log_state import LogState
from tidelog.log.producer_state import ProducerState
from tidelog.log.segment import Segment
from tidelog.log.segment_reads import LogSlice

__all__ = ["AppendInfo", "LogSlice", "PartitionLog"]


class PartitionLog(LogState):
    """The log of one replica; only its LogDirectory creates it."""

    __slots__ = ("flushes",)

    _appends: AppendQueue
    held: HeldRequests[PartitionLog] | None

    def __init__(
        self,
        directory: DirectoryState,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerState,
        name: str = "",
    ) -> None:
        super().__init__(
            directory, topic_partition, topic_id, config, segments, log_start_offset,
            log_end_offset, recovery_point, epochs, producers, name,
        )  # fmt: skip
        self.flushes = Flushes(self)
        self._appends = AppendQueue(self, self.flushes)

    # appending

    def check_on_thread(self, records: Buffer) -> Completion[Checked]:
        """Check a client's batch on a thread before `plan_leader_append`.

        The check does not block the event loop. The returned completion fails with KafkaError for a
        rejected batch.
        """
        return check_on_thread(self, records)

    def plan_leader_append(
        self,
        records: Buffer,
        leader_epoch: int,
        now_ms: int,
        checked: Checked | None = None,
    ) -> Completion[AppendInfo]:
        """Check a client's batch, assign its offsets and leader epoch, and queue it.

        `records` is one batch. The log patches the batch in place if the buffer is writable; the
        buffer must stay valid until the returned completion is done. `now_ms` is the wall clock.
        For a rejected batch, raises KafkaError and changes nothing: CORRUPT_MESSAGE,
        INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE. Raises NOT_LEADER_OR_FOLLOWER while the log is
        being truncated or is closed, and StorageError if the directory has failed or is full. The
        returned completion may fail with StorageError. If `checked` is None and the batch is too
        costly to check on the event loop, raises CostlyBatch; the caller must then call
        `check_on_thread` first.

        A duplicate of an idempotent producer's batch is not written again. The completion of a
        duplicate gets the original batch's offsets when the original is written (V38).
        """
        self._check_open()
        found = check_on_loop(self, records) if checked is None else checked
        plan_or_original = plan_from_client(self, found, leader_epoch, now_ms)
        if isinstance(plan_or_original, AppendPlan):
            self.planned.append(plan_or_original)
            return plan_or_original.completion
        return self._appends.repeated(plan_or_original)

    def plan_follower_append(self, records: Buffer) -> Completion[AppendInfo]:
        """Queue the leader's batches unchanged, except an incomplete batch at the end.

        No offset may be below `next_offset`; gaps are allowed, because compaction on the leader
        causes them. Raises KafkaError and changes nothing: CORRUPT_MESSAGE for bytes that are no
        batch or have a wrong CRC, OFFSET_OUT_OF_RANGE for offsets below `next_offset`. If the log
        accepts no appends now, the method raises the same errors as `plan_leader_append`. The
        memory of `records` must stay valid until the completion is done.
        """
        self._check_open()
        plan = plan_from_leader(self, records)
        if plan is None:
            return Completion.of(AppendInfo(self.next_offset, self.next_offset - 1, -1, 0, 0, -1))
        self.planned.append(plan)
        if plan.has_gap and not self.config.compact_enabled:
            plan.completion.then(lambda _: self._settle_gaps())
        return plan.completion

    def configured(self, config: LogConfig) -> None:
        """Replace the topic's configuration; the new configuration applies from the next append
        on.
        """
        was_compacted, self.config = self.config.compact_enabled, config
        if was_compacted and not config.compact_enabled:
            self._settle_gaps()

    def _settle_gaps(self) -> None:
        """Flush the log and write the recovery-point checkpoint.

        The flush is needed when a log is no longer compacted: recovery would mistake gaps beyond
        the recovery point for lost records.
        """

        def flushed(done: Completion[None]) -> None:
            if done.error is None:
                self.directory.checkpoint()

        if not self.is_closed:
            self.flush().then(flushed)

    def _check_open(self) -> None:
        directory = self.directory
        if directory.failure is not None:
            raise directory.failure
        if self._closed or self._truncating:
            why = self._closed or "it is being truncated"
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the log of {self.topic_partition} accepts no operations: {why}",
            )
        if directory.space.free.full_since_ms is not None:
            raise directory.space.error()

    # reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        *,
        min_one_batch: bool,
        may_wait: bool = True,
    ) -> Completion[LogSlice]:
        """Return the complete batches from the batch that contains `offset` up to `end_offset`
        (exclusive).

        The batches have at most `max_bytes` in total; with `min_one_batch`, the first batch may
        exceed `max_bytes`. The returned completion is done at once if the page cache has the
        batches. Raises KafkaError OFFSET_OUT_OF_RANGE if `offset` is not between log start and log
        end. The returned completion may fail with StorageError, or with KafkaError CORRUPT_MESSAGE
        if the file differs from the written bytes. Without `may_wait`, the completion fails with
        NotCached if the read would have to wait for the disk.
        """
        return log_reads.read(self, offset, max_bytes, end_offset, min_one_batch, may_wait)

    def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: int
    ) -> Completion[tuple[int, int, int] | None]:
        """Return (timestamp, offset, leader epoch) of the first record at or after a time.

        The result is None if no record below `end_offset` has this time or a later time.
        """
        return log_reads.offset_for_timestamp(self, timestamp_ms, end_offset)

    def offsets_before(self, timestamp_ms: int, count: int, now_ms: int) -> list[int]:
        """Return at most `count` base offsets of segments, in descending order.

        Segments that were last written after `timestamp_ms` are left out; the `timestamp_ms` -1
        selects all segments, and -2 only the first segment. Unless the last segment is empty, the
        log end counts as the base offset of one more segment, last written at `now_ms`. Source:
        UnifiedLog.legacyFetchOffsetsBefore (ListOffsets version 0).
        """
        return log_reads.offsets_before(self, timestamp_ms, count, now_ms)

    def max_timestamp(self) -> Completion[tuple[int, int, int] | None]:
        """Return (timestamp, offset, leader epoch) of the first record with maximum timestamp."""
        return log_reads.max_timestamp(self)

    # leadership, truncation, flush, retention

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`, when this replica becomes leader.

        The call does no file operation (V31, V39).
        """
        self.epochs.assign(epoch, start_offset)
        self._appends.epoch_assigned(epoch, start_offset)

    def truncate_to(self, offset: int) -> Completion[None]:
        """Remove all records at or beyond `offset`, after writing the planned appends.

        Does nothing if `offset` is at or beyond the log end. A batch that contains `offset` is
        removed completely, so the log may end below `offset`. Producer state and leader epochs are
        truncated with the records (V38). The truncation also forgets known damage from `offset` on
        (V68). The log's owner must lower the high watermark to the new log end.
        """
        if self.held is not None:
            return self.held.later(lambda log: log.truncate_to(offset))
        return self._truncate(lambda done: truncation.truncate_to(self, offset, done))

    def truncate_fully_and_start_at(self, offset: int) -> Completion[None]:
        """Remove all records; the next record gets `offset` (V67)."""
        if self.held is not None:
            return self.held.later(lambda log: log.truncate_fully_and_start_at(offset))
        return self._truncate(lambda done: truncation.truncate_fully(self, offset, done))

    def _truncate(self, start: Callable[[Completion[None]], None]) -> Completion[None]:
        if self._closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log is {self._closed}")
        completion: Completion[None] = Completion()
        done: Completion[None] = Completion()

        def finish(_: Completion[None]) -> None:
            self._truncating -= 1
            self.truncating_to = None
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

    def flush(self) -> Completion[None]:
        """Make all written records durable, then raise the recovery point (V39).

        The flush does not cover planned appends, or appends written during the flush. A caller that
        needs planned appends to be durable must await them before it flushes. The returned
        completion may fail with StorageError; after a failed fsync the directory has failed for
        good (D17).
        """
        return self.flushes.start()

    def enforce_retention(self, now_ms: int, high_watermark: int) -> Completion[int]:
        """Remove old segments by retention time and size; return their number.

        Removed segments lie completely below `high_watermark`. `log_start_offset` rises to the
        first remaining segment. `now_ms` is the wall clock.
        """
        return retention.enforce(self, now_ms, high_watermark, self._appends.rolled)

    def advance_log_start(self, offset: int) -> bool:
        """Raise the log start to `offset`; return False if the log start is already that high.

        Readers get no records below the log start; the next retention removes the files. Raises
        KafkaError OFFSET_OUT_OF_RANGE if `offset` is above the log end.
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
        self.forget_damage_before_start()
        return True

    # replacement of a log by its future log

    def producers_at_end(self) -> bytes:
        """Return a snapshot of the producer state without the planned appends."""
        return self._appends.producers_at(self.log_end_offset)

    def succeed(self, former: PartitionLog) -> None:
        """Take the place of the log `former`; this log has all records of `former` (D11).

        No operation on `former` may be under way. This log takes over the planned appends of
        `former`. It also takes over the producers and leader epochs of `former`, because they
        cannot be rebuilt completely from the records.
        """
        assert self.log_end_offset == former.log_end_offset, f"{self.path}, {former.path}"
        self.config = former.config
        self.topic_id = former.topic_id
        self.producers, self.epochs = former.producers, former.epochs
        self.epochs.changed = True
        self.next_offset = former.next_offset
        self.log_start_offset = max(self.log_start_offset, former.log_start_offset)
        self.oldest_unflushed_ms = former.oldest_unflushed_ms
        self._appends.take_over(former._appends)
        self.check_invariants()

    # ending

    def close(self, why: str) -> Completion[None]:
        """Reject further operations; the completion is done when no operation is under way.

        Planned appends that are not submitted fail with KafkaError NOT_LEADER_OR_FOLLOWER.
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
