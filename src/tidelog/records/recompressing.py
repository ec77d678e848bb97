"""Recompression of a client's batch with the codec of the topic's `compression.type`.

The records keep their keys, values, headers, offsets and timestamps. The new header keeps the
producer id, the producer epoch, the base sequence, the record count, the largest timestamp and the
transactional flag. Codec, length and CRC-32C are new, and the base timestamp becomes the first
record's timestamp. Source: LogValidator.buildRecordsAndAssignOffsets, MemoryRecordsBuilder.
"""

from __future__ import annotations

from tidelog.core.checksums import crc32c
from tidelog.records import compression
from tidelog.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_MASK,
    BatchView,
)
from tidelog.records.reader import read_keys, records_payload, wrapped
from tidelog.records.rewriting import relative_to


def recompressed(
    batch: BatchView, codec: int, level: int | None, max_decompressed_bytes: int
) -> BatchView:
    """Return the records of a checked batch as a new batch with `codec`, in a buffer of its own.

    `level` is Kafka's number for the codec, None for the codec's default. Raises CorruptBatch if
    the records cannot be read, OversizedBatch if they decompress to more than
    `max_decompressed_bytes`.
    """
    payload = records_payload(batch, max_decompressed_bytes)
    base_timestamp = batch.base_timestamp
    if not _starts_at_base_timestamp(payload):
        payload, records = read_keys(batch, max_decompressed_bytes)
        first = records[0].timestamp_delta
        base_timestamp = wrapped(base_timestamp + first)
        payload = relative_to(first, payload, records)
    body = compression.compress(codec, payload, level)
    made = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        made,
        0,
        batch.base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
        batch.partition_leader_epoch,
        MAGIC,
        0,
        batch.attributes & TRANSACTIONAL_MASK | codec,
        batch.last_offset_delta,
        base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    made += body
    made[17:21] = crc32c(memoryview(made)[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    return BatchView(made)


def _starts_at_base_timestamp(payload: bytes) -> bool:
    """Return whether the timestamp delta of the first record is 0, as in batches of clients."""
    position = 0
    while payload[position] >= 0x80:
        position += 1
    # The attributes and the timestamp delta follow the record's size.
    return payload[position + 2] == 0
