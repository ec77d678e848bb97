"""One task of a copy: a range of one partition, batch by batch, in order.

A task first compares the target's tail with the source (`tail`): records that an earlier run stored
count as copied. After the comparison with the target's tail, the task sends the next batches. The
position of a batch in the copy determines its sequence number, under the copy's own producer id.
The leader of the target therefore stores each batch once: it recognises repeated batches, and
rejects batches that come too early or from a stale task. If the leader of the target reports an
unexpected base offset, the task ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from tidelog.client.fetching import EARLIEST, LATEST, FetchedPartition
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError, TidelogError
from tidelog.core.limits import MIB
from tidelog.core.types import READ_COMMITTED, TopicPartition
from tidelog.records.batch import BatchView, iter_batches
from tidelog.records.builder import Producer
from tidelog.records.reader import Record, iter_records
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.copy.offset_map import ABSENT, DELETED, OffsetTable, Piece, pieces_of
from tidelog.spark.pipelines.copy.tail import ForeignRecordsError, TargetTail
from tidelog.spark.pipelines.copy.transcribing import (
    Transcript,
    rebuilt,
    sequence_of,
    signed,
    transcripts,
)
from tidelog.spark.pipelines.task_rows import Row

FETCH_BYTES: Final = 8 * MIB
_MAX_WAIT_MS: Final = 500
#: Number of empty responses, from a leader whose log covers the range, after which the range counts
#: as copied.
_EMPTY_ANSWERS: Final = 3


class CopyError(TidelogError):
    """The error for a copy that cannot continue; the message states the remedy."""


@dataclass(frozen=True, slots=True)
class Range:
    """The part of one partition that a task copies: source offsets `[start, end)`."""

    source: str
    target: str
    source_partition: TopicPartition
    target_partition: TopicPartition
    start: int
    end: int
    #: Target offset of the next record.
    target_start: int
    producer_id: int
    producer_epoch: int
    #: Number of records that the copy's producer has stored before `target_start`.
    records_before: int
    #: Number of copied bytes after which the task ends, at the end of a batch.
    max_bytes: int
    timeout_ms: int
    #: Whether to skip records that were deleted from the source.
    skip_deleted: bool = False


def copy_range(wanted: Range) -> Iterator[Row]:
    """Copy a range; return one row: pieces of the offset table, bytes, records found in the target.

    Raises CopyError, ForeignRecordsError, KafkaError.
    """
    with (
        BlockingClient(wanted.source, "tidelog-copy", wanted.timeout_ms) as source,
        BlockingClient(wanted.target, "tidelog-copy", wanted.timeout_ms) as target,
    ):
        transfer = _Transfer(wanted, source, target)
        transfer.run()
    yield {
        "topic": wanted.source_partition.topic,
        "partition": wanted.source_partition.partition,
        "pieces": transfer.table.pieces,
        "bytes": transfer.sent_bytes,
        "found": transfer.found_records,
        "batches": transfer.batches,
    }


class _Transfer:
    """The copy of one range of a partition's offsets, in one Spark task."""

    def __init__(self, wanted: Range, source: BlockingClient, target: BlockingClient) -> None:
        self._wanted = wanted
        self._source = source
        self._target = target
        self._position = wanted.start
        self.table = OffsetTable()
        self.sent_bytes = self.found_records = self.batches = 0
        self._tail = self._open_tail()

    @property
    def _next_target(self) -> int:
        end = self.table.target_end
        return self._wanted.target_start if end is None else end

    def run(self) -> None:
        """Copy until the range ends or the limit of bytes is reached."""
        wanted = self._wanted
        empty = 0
        patience_ends = time.monotonic() + wanted.timeout_ms / 1000
        while self._position < wanted.end and self.sent_bytes < wanted.max_bytes:
            fetched = self._fetch()
            if fetched is None:
                continue
            before = self._position
            for made in transcripts(fetched.records, self._position, fetched.aborted):
                self._take(made)
                if self._position >= wanted.end or self.sent_bytes >= wanted.max_bytes:
                    break
            if self._position != before:
                empty = 0
                patience_ends = time.monotonic() + wanted.timeout_ms / 1000
                continue
            empty += 1
            if fetched.last_stable_offset >= wanted.end:
                if empty >= _EMPTY_ANSWERS:
                    self._skip(wanted.end, ABSENT)  # compaction removed the last records
            elif time.monotonic() > patience_ends:
                raise CopyError(
                    f"{wanted.source_partition} of the source should be copied up to offset"
                    f" {wanted.end}, but its leader shows nothing above"
                    f" {fetched.last_stable_offset}: it may be electing a leader, or records were"
                    " lost in an unclean election"
                )
        if self._tail is not None and not self._tail.is_over and self._position >= wanted.end:
            raise ForeignRecordsError(
                f"{wanted.target_partition} of the target has records from offset"
                f" {self._next_target} on that the source does not have: another program writes to"
                " the target. Copy into a topic that only the copy writes to"
            )

    # -- source ---------------------------------------------------------------------------------

    def _fetch(self) -> FetchedPartition | None:
        """Return the next batches; None if deleted records were skipped."""
        tp = self._wanted.source_partition
        try:
            return self._source.fetch(
                tp,
                self._position,
                FETCH_BYTES,
                max_wait_ms=_MAX_WAIT_MS,
                isolation_level=READ_COMMITTED,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise CopyError(f"reading {tp} of the source: {error}") from error
            first = self._source.list_offsets({tp: EARLIEST})[tp].offset
            if not self._wanted.skip_deleted or not self._position < first <= self._wanted.end:
                last = self._source.list_offsets({tp: LATEST})[tp].offset
                raise CopyError(deleted_text(tp, self._position, first, last)) from error
            self._skip(first, DELETED)
            return None

    def _skip(self, end: int, kind: str) -> None:
        self.table.add(Piece(self._position, end, self._next_target, kind))
        self._position = max(self._position, end)

    # -- target ---------------------------------------------------------------------------------

    def _open_tail(self) -> TargetTail | None:
        wanted = self._wanted
        tp = wanted.target_partition
        end = self._target.list_offsets({tp: LATEST})[tp].offset
        if end < wanted.target_start:
            raise CopyError(
                f"{tp} of the target ends at offset {end}, but {wanted.target_start} was copied:"
                " its records were lost or the topic was recreated. Copy into a new topic, with a"
                " new directory of the copy"
            )
        if end == wanted.target_start:
            return None
        return TargetTail(tp, wanted.target_start, end, self._read_target)

    def _read_target(self, offset: int) -> Iterator[Record]:
        tp = self._wanted.target_partition
        fetched = self._target.fetch(tp, offset, FETCH_BYTES, max_wait_ms=_MAX_WAIT_MS)
        for batch in iter_batches(fetched.records):
            if not batch.is_control:
                yield from (each for each in iter_records(batch) if each.offset >= offset)

    def _take(self, made: Transcript) -> None:
        """Copy the records of one batch that the target's tail does not hold."""
        if made.kind:
            self._skip(made.end, made.kind)
            return
        offsets, batch = made.offsets, made.batch
        if offsets and self._tail is not None and not self._tail.is_over:
            records = list(iter_records(BatchView(batch)))
            held = self._tail.take(
                [each._replace(offset=at) for each, at in zip(records, offsets, strict=True)]
            )
            self._note(offsets[:held])
            self.found_records += held
            offsets = offsets[held:]
            batch = rebuilt(records[held:], BatchView(batch).compression) if offsets else batch
        if offsets:
            self._send(batch, len(offsets))
            self._note(offsets)
        if made.end > self._position:
            self._skip(made.end, ABSENT)

    def _note(self, offsets: range | list[int]) -> None:
        if not offsets:
            return
        if offsets[0] > self._position:
            self._skip(offsets[0], ABSENT)
        target = self._next_target
        found = (
            [Piece(offsets.start, offsets.stop, target)]
            if isinstance(offsets, range)
            else pieces_of(offsets, target)
        )
        for piece in found:
            self.table.add(piece)
        self._position = offsets[-1] + 1

    def _send(self, batch: bytearray, count: int) -> None:
        wanted = self._wanted
        expected = self._next_target
        before = wanted.records_before + expected - wanted.target_start
        producer = Producer(wanted.producer_id, wanted.producer_epoch, sequence_of(before))
        tp = wanted.target_partition
        try:
            base = self._target.produce(tp, signed(batch, producer))
        except (KafkaError, ProtocolError) as error:
            raise CopyError(_refused_text(tp, expected, count, error)) from error
        if base not in (expected, -1):
            raise ForeignRecordsError(
                f"{tp} of the target stored a copied batch at offset {base}, where {expected} was"
                " next: another program writes to the target. Copy into a topic that only the copy"
                " writes to, with a new directory of the copy"
            )
        self.sent_bytes += len(batch)
        self.batches += 1


def deleted_text(tp: TopicPartition, position: int, first: int, last: int) -> str:
    """Return the error message for a source that no longer holds the next offset."""
    return (
        f"{tp} of the source has no offset {position} any more; its log holds {first} to {last}:"
        " records were deleted before they were copied, or the topic was recreated. --skip-deleted"
        " goes on without deleted records, and the table names them"
    )


def _refused_text(tp: TopicPartition, offset: int, count: int, error: TidelogError) -> str:
    hint = ""
    code = error.code if isinstance(error, KafkaError) else None
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        hint = "; raise max.message.bytes of the target topic"
    elif code is ErrorCode.INVALID_TIMESTAMP:
        hint = "; raise message.timestamp.before.max.ms of the target topic"
    elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        hint = "; a task of an ended run was still writing: run the copy again"
    return f"{tp} of the target refused {count} records at offset {offset}: {error}{hint}"
