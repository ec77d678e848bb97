"""The records inside a batch, read in one walk that yields columns.

A walk costs about a microsecond a record in Python. For speed, the walk goes through the bytes
once, reads varints of one and two bytes inline, and fills one list per column. Arrow needs columns;
for other callers `iter_records` makes single records of the columns. Decompression is bounded
(`records.compression`). Functions raise only CorruptBatch, for illegible bytes. The leader's checks
of a client's records (`records.checking`) are stricter than this module. Source:
org.apache.kafka.common.record.DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.core.limits import MAX_DECOMPRESSED_BYTES
from tidelog.records import compression
from tidelog.records.batch import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME,
    BatchView,
    CorruptBatch,
    InvalidBatch,
    OversizedBatch,
)

#: Minimum size of a record: length, attributes, timestamp delta, offset delta, key, value and
#: header count take one byte each.
MIN_RECORD_BYTES = 7

_MAX_INT64 = 2**63 - 1

Headers = list[tuple[str, bytes | None]]
#: Empty list that all records without headers share; it must not be changed.
NO_HEADERS: Headers = []


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class RecordColumns(NamedTuple):
    """The records of one batch, with one list per column, all of the same length."""

    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    #: Headers of the records; an empty list if headers were not requested.
    headers: list[Headers]


def records_payload(
    batch: BatchView, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Return the decompressed bytes of the records, at most `max_decompressed_bytes`.

    Raises OversizedBatch for more than `max_decompressed_bytes`, CorruptBatch for damaged bytes.
    """
    codec = batch.attributes & COMPRESSION_MASK
    if codec == compression.NONE:
        return bytes(batch.records)
    try:
        return bytes(compression.decompress(codec, batch.records, max_decompressed_bytes))
    except compression.OversizedError as error:
        raise OversizedBatch(batch.position, str(error)) from None
    except compression.CompressionError as error:
        raise CorruptBatch(batch.position, str(error)) from None


def read_columns(
    batch: BatchView,
    *,
    with_headers: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    keeps_bytes: bool = False,
) -> RecordColumns:
    """Return all records of a batch, data or control batch, column by column.

    Bytes of header keys that are not UTF-8 are replaced, as in Kafka's clients, or kept as
    surrogates with `keeps_bytes`.
    """
    payload = records_payload(batch, max_decompressed_bytes)
    columns = RecordColumns([], [], [], [], [])
    if batch.record_count * MIN_RECORD_BYTES > len(payload):
        raise InvalidBatch(
            batch.position,
            f"{batch.record_count} records do not fit the {len(payload)} bytes that are here",
        )
    try:
        end = _walk(
            batch, payload, columns, with_headers, "surrogateescape" if keeps_bytes else "replace"
        )
    except IndexError:
        raise InvalidBatch(batch.position, _at(columns, "the records end too early")) from None
    except _BadRecord as error:
        raise InvalidBatch(batch.position, _at(columns, str(error))) from None
    if end != len(payload):
        raise InvalidBatch(
            batch.position, f"{len(payload) - end} bytes are left after the last record"
        )
    timestamps_ms = columns.timestamps_ms
    if timestamps_ms and (max(timestamps_ms) > _MAX_INT64 or min(timestamps_ms) < -_MAX_INT64 - 1):
        timestamps_ms[:] = map(wrapped, timestamps_ms)
    if batch.timestamp_type == LOG_APPEND_TIME:
        columns.timestamps_ms[:] = [batch.max_timestamp] * len(columns.offsets)
    return columns


def wrapped(timestamp_ms: int) -> int:
    """Return a sum or difference of timestamps, wrapped to 64 bits as in Kafka's clients.

    Clients choose the base timestamp and the delta, which have 64 bits each, so their sum may need
    more than 64 bits.
    """
    return (timestamp_ms + 2**63) % 2**64 - 2**63


class KeyedRecord(NamedTuple):
    """A record's place in its batch's payload, with the fields that compaction needs."""

    #: Position of the record's first byte, where the field with the record's size begins.
    start: int
    #: Position of the attributes byte, after the size.
    body: int
    #: Position of the offset delta, after the timestamp delta.
    rest: int
    #: Position after the record.
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    #: Whether the record has a value; False for a tombstone.
    has_value: bool


def read_keys(
    batch: BatchView, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> tuple[bytes, list[KeyedRecord]]:
    """Return the decompressed records of a batch, and the place (not the content) of each record.

    Raises CorruptBatch for illegible bytes.
    """
    payload = records_payload(batch, max_decompressed_bytes)
    records: list[KeyedRecord] = []
    try:
        end = _walk_keys(payload, batch.record_count, records)
    except IndexError:
        raise InvalidBatch(
            batch.position, f"record {len(records)}: the records end too early"
        ) from None
    except _BadRecord as error:
        raise InvalidBatch(batch.position, f"record {len(records)}: {error}") from None
    if end != len(payload):
        raise InvalidBatch(
            batch.position, f"{len(payload) - end} bytes are left after the last record"
        )
    return payload, records


def _walk_keys(data: bytes, count: int, records: list[KeyedRecord]) -> int:
    """Fill `records`; return where the last record ends.

    Raises IndexError if a record reaches beyond the data.
    """
    add, new = records.append, tuple.__new__
    position = 0
    total = len(data)
    for _ in range(count):
        start = position
        size, body = _varint(data, position)
        end = body + size
        if size < MIN_RECORD_BYTES - 1 or end > total:
            raise _BadRecord(f"a size of {size} bytes does not fit")
        byte = data[body + 1]
        if byte < 0x80:
            rest = body + 2
            timestamp_delta = (byte >> 1) ^ -(byte & 1)
        else:
            timestamp_delta, rest = _varint(data, body + 1)
        byte = data[rest]
        if byte < 0x80:
            position = rest + 1
            offset_delta = (byte >> 1) ^ -(byte & 1)
        else:
            offset_delta, position = _varint(data, rest)
        byte = data[position]
        if byte < 0x80:
            position += 1
            size = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = _varint(data, position)
        key: bytes | None = None
        if size >= 0:
            key = data[position : position + size]
            position += size
        size, position = _varint(data, position)
        if position + max(size, 0) >= end:
            raise _BadRecord("key and value are longer than the record")
        fields = (start, body, rest, end, timestamp_delta, offset_delta, key, size >= 0)
        # `tuple.__new__` gives the same record as a call of the class, in a third of the time.
        add(new(KeyedRecord, fields))
        position = end
    return position


def iter_records(
    batch: BatchView,
    *,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    keeps_bytes: bool = False,
) -> Iterator[Record]:
    """Return the records of a batch one by one; the whole batch is read before the first record."""
    columns = read_columns(
        batch, max_decompressed_bytes=max_decompressed_bytes, keeps_bytes=keeps_bytes
    )
    return map(Record, *columns)


class _BadRecord(Exception):
    """The error for a record whose content contradicts itself."""


def _at(columns: RecordColumns, reason: str) -> str:
    return f"record {len(columns.offsets)}: {reason}"


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint of up to 64 bits, and the position after it."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        value = byte & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    value = byte & 0x7F | (second & 0x7F) << 7
    shift = 14
    position += 2
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise _BadRecord("a number has more than 10 bytes")
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return (value >> 1) ^ -(value & 1), position


def _walk(
    batch: BatchView, data: bytes, columns: RecordColumns, with_headers: bool, errors: str
) -> int:
    """Fill `columns`; return where the last record ends.

    `errors` names the error handler with which header keys are decoded from UTF-8. Raises
    IndexError if a record reaches beyond the data.
    """
    base_offset = batch.base_offset
    base_timestamp = batch.base_timestamp
    add_offset = columns.offsets.append
    add_timestamp = columns.timestamps_ms.append
    add_key = columns.keys.append
    add_value = columns.values.append
    add_headers = columns.headers.append
    position = 0
    total = len(data)
    for _ in range(batch.record_count):
        size, position = _varint(data, position)
        end = position + size
        if size < MIN_RECORD_BYTES - 1 or end > total:
            raise _BadRecord(f"a size of {size} bytes does not fit")
        position += 1  # attributes, unused
        byte = data[position]
        if byte < 0x80:
            position += 1
            timestamp_delta = (byte >> 1) ^ -(byte & 1)
        else:
            timestamp_delta, position = _varint(data, position)
        byte = data[position]
        if byte < 0x80:
            position += 1
            offset_delta = (byte >> 1) ^ -(byte & 1)
        else:
            offset_delta, position = _varint(data, position)
        byte = data[position]
        if byte < 0x80:
            position += 1
            size = (byte >> 1) ^ -(byte & 1)
        else:
            size, position = _varint(data, position)
        if size >= 0:
            key: bytes | None = data[position : position + size]
            position += size
        else:
            key = None
        size, position = _varint(data, position)
        if size >= 0:
            value: bytes | None = data[position : position + size]
            position += size
        else:
            value = None
        if position >= end:
            raise _BadRecord("key and value are longer than the record")
        if data[position] == 0:
            position += 1
            headers = NO_HEADERS
        else:
            headers, position = _headers(data, position, end, errors)
        if position != end:
            raise _BadRecord(f"its size is off by {position - end} bytes")
        add_offset(base_offset + offset_delta)
        add_timestamp(base_timestamp + timestamp_delta)
        add_key(key)
        add_value(value)
        if with_headers:
            add_headers(headers)
    return position


def _headers(data: bytes, position: int, end: int, errors: str) -> tuple[Headers, int]:
    count, position = _varint(data, position)
    if count < 0 or count * 2 > end - position:
        raise _BadRecord(f"{count} headers do not fit")
    headers: Headers = []
    for _ in range(count):
        size, position = _varint(data, position)
        if size < 0 or position + size > end:
            raise _BadRecord(f"a header key of {size} bytes does not fit")
        key = data[position : position + size].decode("utf-8", errors)
        position += size
        size, position = _varint(data, position)
        if position + max(size, 0) > end:
            raise _BadRecord(f"a header value of {size} bytes does not fit")
        if size >= 0:
            headers.append((key, data[position : position + size]))
            position += size
        else:
            headers.append((key, None))
    return headers, position
