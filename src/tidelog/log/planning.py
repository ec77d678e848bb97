"""Checks what is to be appended and makes a plan of it; nothing is changed where it is refused.

From a client: one batch, whole, of magic 2, CRC right, its numbers consistent, not too large, its
sequence the producer's next one. From the leader: batches that continue this log. What a plan
changes at once (next offset, producer state, leader epochs) it can also undo. Rules V37, V38.
Sources: UnifiedLog.append, LogValidator.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core import limits
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.ports import Buffer, Files, Work
from tidelog.log.appends import AppendInfo, Plan, PlannedBatch
from tidelog.log.config import LOG_APPEND_TIME, LogConfig
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
from tidelog.records.compression import NAMES
from tidelog.records.reader import check_records

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog


class CostlyBatch(TidelogError):
    """A compressed batch whose check would hold the loop for too long: a thread is to do it."""


class Checked(NamedTuple):
    """A client's batch, found good, with the largest timestamp in it."""

    batch: BatchView
    max_timestamp_ms: int


def check_on_loop(log: PartitionLog, records: Buffer) -> Checked:
    """Check a client's batch at once. Raises KafkaError, and CostlyBatch where it has too much
    inside for that."""
    config = log.config
    limit_bytes = min(config.max_decompressed_bytes, limits.MAX_DECOMPRESSED_ON_LOOP_BYTES)
    try:
        return _checked(log.topic_partition.topic, config, records, limit_bytes)
    except OversizedBatch as error:
        if limit_bytes < config.max_decompressed_bytes:
            raise CostlyBatch(str(error)) from None
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def check_on_thread(log: PartitionLog, records: Buffer) -> Completion[Checked]:
    """Check a client's batch on the directory's thread; the completion's error is a KafkaError."""
    topic, config = log.topic_partition.topic, log.config

    def check_it(_: Files) -> Checked:
        try:
            return _checked(topic, config, records, config.max_decompressed_bytes)
        except OversizedBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None

    return log.directory.lane.submit(check_it, Work.SLOW, "check of a batch")


def turn_away(log: PartitionLog, records: Buffer) -> None:
    """A client's batch is refused, not looked at, for a reason that passes: what its producer sent
    behind it must not come before it."""
    try:
        batch = BatchView(records, 0)
        check(batch)
    except CorruptBatch:
        return  # it will be refused for that when it comes again
    log.producers.turned_away(batch.producer_id, batch.producer_epoch, batch.base_sequence)


def plan_from_client(
    log: PartitionLog, found: Checked, leader_epoch: int, now_ms: int
) -> Plan | AppendInfo:
    """The plan of a client's batch, or what became of the original where it is repeated.

    Raises KafkaError.
    """
    batch, max_timestamp_ms = found
    view = memoryview(batch.buffer)
    if batch.producer_id > NO_PRODUCER_ID:
        original = log.producers.check(batch)
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
    info = AppendInfo(
        base_offset, last_offset, append_time_ms, batch.record_count, size, leader_epoch
    )
    planned = PlannedBatch(base_offset, last_offset, size, max_timestamp_ms)
    plan = Plan(view, [planned], info, max_timestamp_ms, now_ms)
    if batch.producer_id > NO_PRODUCER_ID:
        plan.undos.append(log.producers.append(batch, log.directory.clock.monotonic_ms()))
    _assign_epoch(log, plan, leader_epoch, base_offset)
    log.next_offset = last_offset + 1
    return plan


def _checked(topic: str, config: LogConfig, records: Buffer, max_decompressed: int) -> Checked:
    """The only batch in `records`, which are copied where they cannot be written to. Raises
    KafkaError, and OversizedBatch where it decompresses to more bytes than `max_decompressed`."""
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(view))
    try:
        batch = BatchView(view)
        size = batch.size_bytes
        if size > len(view):  # a length that is not true says nothing about limits
            raise CorruptBatch(batch.position, f"{size} bytes long, but only {len(view)} are here")
        if size > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {size} bytes; {topic} takes at most "
                f"{config.max_message_bytes} (max.message.bytes)",
            )
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes; a segment has at most {config.segment_bytes} "
                "(segment.bytes)",
            )
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
        max_timestamp_ms = check_records(
            batch, max_decompressed, keys_required=config.compact_enabled
        )
    except OversizedBatch:
        raise
    except InvalidBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if batch.attributes & TRANSACTIONAL_MASK:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {batch.producer_id} has no transaction on {topic}",
        )
    return Checked(batch, max_timestamp_ms)


def plan_from_leader(log: PartitionLog, records: Buffer) -> Plan | None:
    """The plan of what the leader sent, None when no whole batch is in it. Raises KafkaError."""
    view = memoryview(records)
    try:
        batches = _continuing(log, view)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if not batches:
        return None
    first, last = batches[0], batches[-1]
    size = last.position + last.size_bytes
    max_timestamp_ms = max(batch.max_timestamp for batch in batches)
    info = AppendInfo(
        first.base_offset,
        last.last_offset,
        NO_TIMESTAMP,
        sum(batch.record_count for batch in batches),
        size,
        last.partition_leader_epoch,
    )
    planned = [
        PlannedBatch(batch.base_offset, batch.last_offset, batch.size_bytes, batch.max_timestamp)
        for batch in batches
    ]
    now_ms = log.directory.clock.wall_ms()
    plan = Plan(view[:size], planned, info, max_timestamp_ms, now_ms)
    seen_ms = log.directory.clock.monotonic_ms()
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
        # Where the epoch's first records are gone, it begins at the end of what is here: a replica
        # that compares its log with this one must not keep what it may have there of an epoch past.
        start = min(batch.base_offset, end)
        _assign_epoch(log, plan, batch.partition_leader_epoch, start)
        plan.has_gap |= batch.base_offset > end
        end = batch.next_offset
    log.next_offset = end
    return plan


def _continuing(log: PartitionLog, view: memoryview) -> list[BatchView]:
    """The whole batches of `view`, checked, from the log's next offset on."""
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


def _note_gap(log: PartitionLog, expected: int, base_offset: int) -> None:
    """Compaction has left a gap on the leader. The topic may have been compacted in earlier days,
    so a follower takes a gap in any case; where it is not compacted now, that is worth a line."""
    if not log.config.compact_enabled:
        log.directory.log_note(
            logging.WARNING,
            f"{log.topic_partition} is not compacted, and its leader has no offsets {expected} to "
            f"{base_offset - 1}: they were compacted earlier, or are lost",
        )


def _begins_inside(log: PartitionLog, batch: BatchView, expected: int) -> bool:
    """An empty log may start inside a batch, where the leader's log start lies (V67)."""
    return (
        expected == log.next_offset
        and log.size_bytes == 0
        and log.log_start_offset == expected
        and batch.base_offset < expected <= batch.last_offset
    )


def _assign_epoch(log: PartitionLog, plan: Plan, epoch: int, start_offset: int) -> None:
    """Note the batch's leader epoch, as its undo needs it."""
    epochs = log.epochs
    if epoch < 0 or (epochs.latest_epoch == epoch and epochs.latest_start_offset <= start_offset):
        return
    if plan.epochs_before is None:
        plan.epochs_before = epochs.entries()
    # An epoch that was led without a record of it does not count: nothing lies beyond here.
    epochs.truncate_from_end(start_offset)
    epochs.assign(epoch, start_offset)


def _check_epoch(log: PartitionLog, epoch: int, start_offset: int, code: ErrorCode) -> None:
    """Leader epochs never go back from record to record; recovery counts on it."""
    latest = log.epochs.epoch_at(start_offset - 1)
    if 0 <= epoch < latest:
        raise KafkaError(
            code,
            f"records of leader epoch {epoch} cannot follow those of {latest} at offset "
            f"{start_offset} of {log.topic_partition}",
        )
