"""Conversion of source batches to batches of the copy's own producer, with the same records.

A batch without missing offsets keeps its records, compressed or not; only base offset, producer and
transaction flag change. Three kinds of batches are rebuilt record by record: batches with missing
offsets (compaction), with LogAppendTime (which becomes the create time), and with a delete horizon.
Control batches and aborted records are not copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog.client.aborted_transactions import AbortedTransactions
from tidelog.client.fetching import AbortedRange
from tidelog.records.batch import (
    ATTRIBUTES_POSITION,
    CREATE_TIME,
    MAX_SEQUENCE,
    TRANSACTIONAL_MASK,
    BatchView,
    assign,
    check,
    iter_batches,
)
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.reader import Record, iter_records
from tidelog.spark.pipelines.copy.offset_map import ABORTED, MARKERS

_ATTRIBUTES: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17
#: The fields of a batch header that identify the producer: producer id, epoch and base sequence.
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43


class Transcript(NamedTuple):
    """A source batch, converted for the target.

    `kind` is the reason not to copy the batch; empty for a copied batch. `offsets` are the source
    offsets of the records in `batch`, as a range if none is missing.
    """

    end: int
    kind: str
    offsets: range | list[int]
    batch: bytearray


_NOTHING: Final = range(0)


def transcripts(
    data: memoryview, position: int, aborted: Iterable[AbortedRange] = ()
) -> Iterator[Transcript]:
    """Yield each fetched batch with offsets from `position` on. Raises CorruptBatch."""
    is_aborted = AbortedTransactions(aborted)
    for batch in iter_batches(data):
        check(batch)
        end = batch.last_offset + 1
        if is_aborted(batch):
            made = Transcript(end, ABORTED, _NOTHING, bytearray())
        elif batch.is_control:
            made = Transcript(end, MARKERS, _NOTHING, bytearray())
        else:
            made = transcribed(batch, position)
        if end > position:
            yield made
            position = end


def transcribed(batch: BatchView, position: int) -> Transcript:
    """Return the records of a data batch from `position` on, as a batch to send."""
    end = batch.last_offset + 1
    is_whole = (
        batch.record_count == batch.last_offset_delta + 1
        and batch.base_offset >= position
        and batch.timestamp_type == CREATE_TIME
        and batch.delete_horizon_ms is None
    )
    if not is_whole:
        kept = [each for each in iter_records(batch) if each.offset >= position]
        if not kept:
            return Transcript(end, "", _NOTHING, bytearray())
        return Transcript(end, "", [each.offset for each in kept], rebuilt(kept, batch.compression))
    copied = bytearray(memoryview(batch.buffer)[batch.position : batch.end_position])
    assign(BatchView(copied), 0, -1)
    attributes = batch.attributes & ~TRANSACTIONAL_MASK
    _ATTRIBUTES.pack_into(copied, ATTRIBUTES_POSITION, attributes)
    return Transcript(end, "", range(batch.base_offset, end), copied)


def rebuilt(records: Iterable[Record], codec: int) -> bytearray:
    """Return a batch of records with offsets from 0 on, compressed as the source batch was."""
    return build_batch(
        [NewRecord(each.key, each.value, each.timestamp_ms, each.headers) for each in records],
        codec=codec,
    )


def signed(batch: bytearray, producer: Producer) -> bytearray:
    """Write the fields of the producer into a batch, and the new checksum."""
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, *producer)
    checksum = int(crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    _CRC.pack_into(batch, _CRC_POSITION, checksum)
    return batch


def sequence_of(records_before: int) -> int:
    """Return the sequence number of the record that follows `records_before` records."""
    return records_before & MAX_SEQUENCE
