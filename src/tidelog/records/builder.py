"""Construction of record batches for clients, coordinators and tests.

A batch is built in one go from its records; the offsets are 0, 1, 2, … until a leader assigns the
log's offsets. Timestamps are milliseconds since 1970. Source: DefaultRecordBatch, DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.core.checksums import crc32c
from tidelog.core.ports import Buffer
from tidelog.records import compression
from tidelog.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)


class NewRecord(NamedTuple):
    """A record to send; a `timestamp_ms` of -1 means no timestamp."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Sequence[tuple[str, bytes | None]] = ()


class Producer(NamedTuple):
    """The producer of a batch, and the sequence number of its first record (KIP-98)."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER = Producer()


def build_batch(
    records: Sequence[NewRecord],
    *,
    codec: int = compression.NONE,
    producer: Producer = NO_PRODUCER,
    base_offset: int = 0,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Return one whole batch, ready to send, in a writable buffer.

    `log_append_time_ms` makes the timestamp type LogAppendTime. Raises ValueError if `records` is
    empty.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0].timestamp_ms
    payload = bytearray()
    for offset_delta, record in enumerate(records):
        _add_record(payload, record, offset_delta, record.timestamp_ms - base_timestamp)
    max_timestamp = max(record.timestamp_ms for record in records)
    attributes = codec
    if log_append_time_ms is not None:
        attributes |= TIMESTAMP_TYPE_MASK
        max_timestamp = log_append_time_ms
    if transactional:
        attributes |= TRANSACTIONAL_MASK
    if control:
        attributes |= CONTROL_MASK
    return seal_batch(
        payload,
        len(records),
        (base_timestamp, max_timestamp),
        attributes=attributes,
        producer=producer,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def seal_batch(
    payload: Buffer,
    count: int,
    timestamps_ms: tuple[int, int],
    *,
    attributes: int,
    level: int | None = None,
    producer: Producer = NO_PRODUCER,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Return a whole batch of `count` encoded records, whose bytes are `payload`.

    `timestamps_ms` are the first record's timestamp and the largest timestamp. `attributes` name
    the codec, and `level` is the codec's compression level in Kafka's numbers.
    """
    codec = attributes & COMPRESSION_MASK
    body = compression.compress(codec, payload, level) if codec else payload
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        count - 1,
        *timestamps_ms,
        *producer,
        count,
    )
    batch += body
    batch[17:21] = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    return batch


def record_size_bytes(record: NewRecord) -> int:
    """Return an upper bound of a record's bytes in an uncompressed batch.

    Callers add up these bounds to decide when a batch is full.
    """
    size = 35 + len(record.key or b"") + len(record.value or b"")
    for key, value in record.headers:
        size += 10 + 3 * len(key) + len(value or b"")
    return size


def _add_record(
    payload: bytearray, record: NewRecord, offset_delta: int, timestamp_delta: int
) -> None:
    body = bytearray(1)
    add_varint(body, timestamp_delta)
    add_varint(body, offset_delta)
    _add_bytes(body, record.key)
    _add_bytes(body, record.value)
    add_varint(body, len(record.headers))
    for key, value in record.headers:
        _add_bytes(body, key.encode("utf-8", "surrogateescape"))
        _add_bytes(body, value)
    add_varint(payload, len(body))
    payload += body


def _add_bytes(body: bytearray, value: bytes | None) -> None:
    if value is None:
        body.append(1)  # the length -1 (null) as a varint
    else:
        add_varint(body, len(value))
        body += value


def add_varint(body: bytearray, value: int) -> None:
    """Append a zigzag varint to `body`."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        body.append(value & 0x7F | 0x80)
        value >>= 7
    body.append(value)
