"""Validation and planning of appends; a rejected append changes nothing.

A client's append must be one complete batch of magic 2 with a valid CRC and consistent header
fields. A client's batch must not be too large, and must begin with the producer's next sequence
number. If the topic's `compression.type` names another codec, the leader recompresses the batch and
checks its size again. Batches from a leader must continue the follower's log. Planning an append
changes the next offset, the producer state and the leader epochs at once; if the write fails, the
log undoes these changes. Rules V37, V38. Sources: UnifiedLog.append, LogValidator.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from tidelog.core import limits
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.ports import Buffer, Files, Work
from tidelog.log.append_plan import AppendInfo, AppendPlan, PlannedBatch
from tidelog.log.config import LOG_APPEND_TIME, NEVER, LogConfig
from tidelog.log.log_state import LogState
from tidelog.log.refused_batches import RefusedBatches, SentBatch
from tidelog.records.batch import (
    COMPRESSION_MASK,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchView,
    CorruptBatch,
    InvalidBatch,
    OversizedBatch,
    assign,
    check,
    check_from_client,
    iter_batches,
    set_log_append_time,
    set_max_timestamp,
)
from tidelog.records.checking import NO_DEMANDS, BadRecords, Demands, Effort, check_records
from tidelog.records.compression import NAMES
from tidelog.records.recompressing import recompressed
from tidelog.records.walk import MAX_INT64, MIN_INT64, Bad


class CostlyBatch(TidelogError):
    """The error of a batch whose check or recompression would block the event loop for too long;
    the directory's thread must check the batch instead.

    """


class RecordsRejected(KafkaError):
    """The error of a client's batch that is intact, but has records that the topic does not accept
    (KIP-467).
    """

    def __init__(self, topic: str, error: BadRecords) -> None:
        timestamps = any(not bad.keyless for bad in error.bad)
        super().__init__(
            ErrorCode.INVALID_TIMESTAMP if timestamps else ErrorCode.INVALID_RECORD,
            f"{topic}: {error.reason}",
        )
        #: The rejected records in order of their indexes in the batch; at most MAX_RECORD_ERRORS.
        self.bad: list[Bad] = error.bad


class Checked(NamedTuple):
    """A valid batch of a client, with the largest timestamp in it."""

    batch: BatchView
    max_timestamp_ms: int


def check_on_loop(log: LogState, records: Buffer) -> Checked:
    """Check a client's batch on the event loop.

    Raises KafkaError if the batch is invalid, and CostlyBatch if the check would block the event
    loop for too long.
    """
    config = log.config
    on_loop = limits.MAX_DECOMPRESSED_ON_LOOP_BYTES
    if config.codec is not None and is_recompressed(config, records):
        on_loop = limits.MAX_RECOMPRESSED_ON_LOOP_BYTES
        if len(records) > on_loop:
            raise CostlyBatch(f"{len(records)} bytes are to be compressed with another codec")
    budget = log.directory.loop_budget
    if not budget.takes(records, limits.MAX_DECOMPRESSED_ON_LOOP_BYTES):
        raise CostlyBatch(f"checking {len(records)} bytes costs more than the loop has left for it")
    limit_bytes = min(config.max_decompressed_bytes, on_loop)
    try:
        topic = log.topic_partition.topic
        return _checked(topic, config, demands(log), records, limit_bytes, budget)
    except OversizedBatch as error:
        if limit_bytes < config.max_decompressed_bytes:
            raise CostlyBatch(str(error)) from None
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def is_recompressed(config: LogConfig, records: Buffer) -> bool:
    """Return whether the topic's codec differs from the codec of the first batch in `records`."""
    try:
        return config.codec is not None and BatchView(records).compression != config.codec
    except CorruptBatch:
        return False  # the batch is corrupt; the full check will report why


def check_on_thread(log: LogState, records: Buffer) -> Completion[Checked]:
    """Check a client's batch on the directory's thread; the completion's error is a KafkaError."""
    topic, config, demanded = log.topic_partition.topic, log.config, demands(log)

    def check_it(_: Files) -> Checked:
        try:
            limit_bytes = config.max_decompressed_bytes
            return _checked(topic, config, demanded, records, limit_bytes, Effort())
        except OversizedBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None

    return log.directory.lane.submit(check_it, Work.COMPUTE, "check of a batch")


def demands(log: LogState) -> Demands:
    """Return what the topic's current configuration demands of each record."""
    config = log.config
    keys = config.compact_enabled
    before_ms, after_ms = config.timestamp_before_max_ms, config.timestamp_after_max_ms
    if before_ms == after_ms == NEVER or config.message_timestamp_type == LOG_APPEND_TIME:
        return Demands(keys) if keys else NO_DEMANDS
    now_ms = log.directory.clock.wall_ms()
    return Demands(
        keys,
        MIN_INT64 if before_ms == NEVER else now_ms - before_ms,
        MAX_INT64 if after_ms == NEVER else min(now_ms + after_ms, MAX_INT64),
    )


def note_refused(refused: RefusedBatches, records: Buffer, error: ErrorCode, now_ms: int) -> None:
    """Note that the leader refuses a client's batch with a retriable error.

    Until the client resends the batch, the log refuses the producer's later batches with the same
    error (V38). `now_ms` is this broker's monotonic clock. The refusal is not noted if the records
    are damaged or their producer is not idempotent.
    """
    try:
        batch = BatchView(records, 0)
        check(batch)
    except CorruptBatch:
        return  # the next check rejects this corrupt batch
    if batch.producer_id > NO_PRODUCER_ID:
        sequences = (batch.base_sequence, batch.last_sequence)
        refused.add(batch.producer_id, batch.producer_epoch, sequences, error, now_ms)


def plan_from_client(
    log: LogState, found: Checked, leader_epoch: int, now_ms: int
) -> AppendPlan | AppendInfo:
    """Plan an append of a client's batch; for a duplicate, return the original append's result.

    Raises KafkaError.
    """
    batch, max_timestamp_ms = found
    view = memoryview(batch.buffer)
    if batch.producer_id > NO_PRODUCER_ID:
        original = log.producers.check(batch, log.directory.clock.monotonic_ms())
        if original is not None:
            log.directory.tracer.mark("duplicate_batch")
            return AppendInfo(
                original.first_offset,
                original.last_offset,
                original.timestamp_ms
                if log.config.message_timestamp_type == LOG_APPEND_TIME
                else NO_TIMESTAMP,
                batch.record_count,
                batch.size_bytes,
                log.epochs.epoch_at(original.first_offset),
                duplicate=True,
                sent=_sent(batch),
            )
    if leader_epoch < log.epochs.latest_epoch:
        _check_epoch(log, leader_epoch, log.next_offset, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    append_time_ms = NO_TIMESTAMP
    if log.config.message_timestamp_type == LOG_APPEND_TIME:
        set_log_append_time(batch, now_ms)
        append_time_ms = max_timestamp_ms = now_ms
    elif max_timestamp_ms != batch.max_timestamp:
        set_max_timestamp(batch, max_timestamp_ms)
    base_offset = log.next_offset
    assign(batch, base_offset, leader_epoch)
    last_offset = base_offset + batch.last_offset_delta
    size = len(view)
    is_idempotent = batch.producer_id > NO_PRODUCER_ID
    info = AppendInfo(
        base_offset,
        last_offset,
        append_time_ms,
        batch.record_count,
        size,
        leader_epoch,
        sent=_sent(batch) if is_idempotent else None,
    )
    planned = PlannedBatch(base_offset, last_offset, size, max_timestamp_ms)
    plan = AppendPlan(view, [planned], info, max_timestamp_ms, now_ms)
    if is_idempotent:
        plan.undos.append(log.producers.append(batch, log.directory.clock.monotonic_ms()))
    _assign_epoch(log, plan, leader_epoch, base_offset)
    log.next_offset = last_offset + 1
    return plan


def _sent(batch: BatchView) -> SentBatch:
    return SentBatch(
        batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence
    )


def _checked(
    topic: str,
    config: LogConfig,
    demanded: Demands,
    records: Buffer,
    max_decompressed: int,
    effort: Effort,
) -> Checked:
    """Check the single batch in `records`, and return it in the topic's codec.

    `records` are copied if they are read-only. Raises KafkaError, and OversizedBatch if the batch
    decompresses to more bytes than `max_decompressed`.
    """
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(view))
    try:
        batch = BatchView(view)
        size = batch.size_bytes
        if size > len(view):  # check the length first, because a corrupt length may be huge
            raise CorruptBatch(batch.position, f"{size} bytes long, but only {len(view)} are here")
        _check_size(topic, config, size, "")
        check_from_client(batch)
        if size < len(view):
            raise InvalidBatch(
                batch.end_position,
                f"{len(view) - size} bytes follow the batch; one batch per partition is allowed",
            )
        if batch.attributes & COMPRESSION_MASK not in NAMES:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"compression codec {batch.compression} is not known",
            )
        max_timestamp_ms = check_records(batch, max_decompressed, demanded, effort)
        if config.codec is not None and batch.compression != config.codec:
            batch = recompressed(batch, config.codec, config.compression_level, max_decompressed)
            size = batch.size_bytes
            _check_size(topic, config, size, f" compressed again ({NAMES[config.codec]})")
    except OversizedBatch:
        raise
    except BadRecords as error:
        raise RecordsRejected(topic, error) from None
    except InvalidBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if batch.attributes & TRANSACTIONAL_MASK:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {batch.producer_id} has no transaction on {topic}",
        )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {size} bytes; a segment has at most {config.segment_bytes} "
            "(segment.bytes)",
        )
    return Checked(batch, max_timestamp_ms)


def _check_size(topic: str, config: LogConfig, size: int, when: str) -> None:
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes{when}; {topic} takes at most "
            f"{config.max_message_bytes} (max.message.bytes)",
        )


def plan_from_leader(log: LogState, records: Buffer) -> AppendPlan | None:
    """Plan an append of the leader's batches; return None if `records` has no complete batch.

    Raises KafkaError.
    """
    view = memoryview(records)
    try:
        batches = _continuing(log, view)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if not batches:
        return None
    first, last = batches[0], batches[-1]
    max_timestamp_ms, record_count = first.max_timestamp, 0
    planned: list[PlannedBatch] = []
    has_producers = False
    for batch in batches:
        timestamp_ms = batch.max_timestamp
        max_timestamp_ms = max(max_timestamp_ms, timestamp_ms)
        record_count += batch.record_count
        planned.append(
            PlannedBatch(batch.base_offset, batch.last_offset, batch.size_bytes, timestamp_ms)
        )
        has_producers = has_producers or batch.producer_id > NO_PRODUCER_ID
    size = last.end_position
    info = AppendInfo(
        first.base_offset,
        planned[-1].last_offset,
        NO_TIMESTAMP,
        record_count,
        size,
        last.partition_leader_epoch,
    )
    now_ms = log.directory.clock.wall_ms()
    plan = AppendPlan(view[:size], planned, info, max_timestamp_ms, now_ms)
    seen_ms = log.directory.clock.monotonic_ms() if has_producers else 0
    try:
        for batch in batches:
            if batch.producer_id > NO_PRODUCER_ID:
                plan.undos.append(log.producers.append(batch, seen_ms))
    except CorruptBatch as error:
        for undo in reversed(plan.undos):
            log.producers.undo(undo)
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    plan.start_offset = end = log.next_offset
    for batch in batches:
        # If compaction removed the epoch's first records, let the epoch begin at the end of this
        # log, not after the gap. Otherwise a replica that compares its log with this log would keep
        # records of an earlier epoch in the gap.
        start = min(batch.base_offset, end)
        _assign_epoch(log, plan, batch.partition_leader_epoch, start)
        plan.has_gap |= batch.base_offset > end
        end = batch.next_offset
    log.next_offset = end
    return plan


def _continuing(log: LogState, view: memoryview) -> list[BatchView]:
    """Return the complete batches in `view`.

    Raises KafkaError if the batches do not continue the log.
    """
    expected = log.next_offset
    epoch = log.epochs.epoch_at(expected - 1)
    batches: list[BatchView] = []
    for batch in iter_batches(view):
        if batch.base_offset > expected:
            _note_gap(log, expected, batch.base_offset)
        elif batch.base_offset < expected and not _begins_inside(log, batch, expected):
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{log.topic_partition} goes on at offset {expected}, "
                f"but the leader sent a batch of {batch.base_offset}..{batch.last_offset}",
            )
        check(batch)
        if batch.partition_leader_epoch < epoch:
            _check_epoch(log, batch.partition_leader_epoch, expected, ErrorCode.CORRUPT_MESSAGE)
        epoch = batch.partition_leader_epoch
        expected = batch.next_offset
        batches.append(batch)
    return batches


def _note_gap(log: LogState, expected: int, base_offset: int) -> None:
    """Write a line to the broker's log about a gap in the leader's offsets, if the topic is not
    compacted now.

    A follower accepts every gap, because the topic may have been compacted earlier.
    """
    if not log.config.compact_enabled:
        log.directory.log_note(
            logging.WARNING,
            f"{log.topic_partition} is not compacted, and its leader has no offsets {expected} to "
            f"{base_offset - 1}: they were compacted earlier, or are lost",
        )


def _begins_inside(log: LogState, batch: BatchView, expected: int) -> bool:
    """Return whether a batch may begin before the next offset `expected` of the log.

    An empty log may start inside a batch, because the leader's log start may lie there (V67).
    """
    return (
        expected == log.next_offset
        and log.size_bytes == 0
        and log.log_start_offset == expected
        and batch.base_offset < expected <= batch.last_offset
    )


def _assign_epoch(log: LogState, plan: AppendPlan, epoch: int, start_offset: int) -> None:
    """Assign the batch's leader epoch to the log, and keep the earlier epochs in the plan."""
    epochs = log.epochs
    if epoch < 0 or epochs.covers(epoch, start_offset):
        return
    if plan.epochs_before is None:
        plan.epochs_before = epochs.entries()
    # Drop the known leader epochs that begin at or beyond `start_offset`, because the log has no
    # records of these epochs.
    epochs.truncate_from_end(start_offset)
    epochs.assign(epoch, start_offset)


def _check_epoch(log: LogState, epoch: int, start_offset: int, code: ErrorCode) -> None:
    """Reject a leader epoch that is lower than the previous record's, because recovery relies on
    rising epochs.
    """
    latest = log.epochs.epoch_at(start_offset - 1)
    if 0 <= epoch < latest:
        raise KafkaError(
            code,
            f"records of leader epoch {epoch} cannot follow those of {latest} at offset "
            f"{start_offset} of {log.topic_partition}",
        )
