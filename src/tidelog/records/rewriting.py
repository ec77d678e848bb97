"""Rewriting of batches for compaction, which removes some of their records.

Base offset, last offset delta, leader epoch, producer and base sequence stay, so that offsets and
sequences continue without a gap. The remaining records keep their offsets. A compressed batch is
recompressed with its codec. A delete horizon replaces the base timestamp (KIP-534), and the
timestamps become relative to the delete horizon. Source: MemoryRecords.filterTo,
DefaultRecordBatch.writeEmptyHeader.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.checksums import crc32c
from tidelog.records import compression
from tidelog.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchView,
)
from tidelog.records.builder import add_varint
from tidelog.records.reader import KeyedRecord, wrapped

_KEPT_OF_AN_EMPTIED_BATCH = TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK


def rewritten(
    batch: BatchView,
    payload: bytes,
    kept: Sequence[KeyedRecord],
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Return the batch with only the records `kept` of its `payload`; `kept` is not empty.

    `delete_horizon_ms` (wall clock) sets the delete horizon of a batch without one; with None, an
    existing horizon stays.
    """
    attributes = batch.attributes
    base_timestamp = batch.base_timestamp
    if delete_horizon_ms is None:
        body = b"".join([payload[record.start : record.end] for record in kept])
    else:
        attributes |= DELETE_HORIZON_MASK
        base_timestamp = delete_horizon_ms
        body = relative_to(delete_horizon_ms - batch.base_timestamp, payload, kept)
    max_timestamp = batch.max_timestamp
    if batch.timestamp_type != LOG_APPEND_TIME:
        base = batch.base_timestamp
        max_timestamp = max(wrapped(base + record.timestamp_delta) for record in kept)
    codec = attributes & COMPRESSION_MASK
    return _batch(
        batch,
        attributes,
        base_timestamp,
        max_timestamp,
        len(kept),
        compression.compress(codec, body) if codec else body,
    )


def emptied(batch: BatchView) -> bytearray:
    """Return the batch without records, but with its offsets and sequence numbers."""
    attributes = batch.attributes & _KEPT_OF_AN_EMPTIED_BATCH
    return _batch(batch, attributes, NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def relative_to(later_ms: int, payload: bytes, kept: Sequence[KeyedRecord]) -> bytes:
    """Return the records with timestamps relative to a new base timestamp.

    The new base timestamp is `later_ms` later than the base timestamp of the batch.
    """
    parts = bytearray()
    for record in kept:
        timestamp = bytearray()
        add_varint(timestamp, wrapped(record.timestamp_delta - later_ms))
        add_varint(parts, 1 + len(timestamp) + record.end - record.rest)
        parts.append(payload[record.body])
        parts += timestamp
        parts += payload[record.rest : record.end]
    return bytes(parts)


def _batch(
    batch: BatchView,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    body: bytes,
) -> bytearray:
    made = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        made,
        0,
        batch.base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
        batch.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        record_count,
    )
    made += body
    made[17:21] = crc32c(memoryview(made)[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    return made
