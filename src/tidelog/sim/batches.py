"""Encoding of record batches for the simulator's clients, and decoding for its checkers.

This module deliberately does not use `tidelog.records`: checkers must not share the mistakes of the
brokers' code. Clients write uncompressed batches of format v2 (KIP-98); a leader stores them with
gzip if the topic's `compression.type` says so. A record's value begins with its number, which is
unique in the run; padding of various sizes follows. In compacted topics, each record has one of a
few keys. The record's number determines its key, and whether it is a tombstone; a tombstone carries
its number in a header. The number of a record that a broker writes itself consists of checksums of
its key and value.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import crc32c

#: Header of a batch: base offset, length, leader epoch, magic, crc; then the fields that the crc
#: covers: attributes, last offset delta, first and largest timestamp, producer id and epoch, base
#: sequence, count.
_HEAD: Final = struct.Struct(">qiibI")
_BODY: Final = struct.Struct(">hiqqqhii")
_LENGTH_AT: Final = 8
_LOG_OVERHEAD: Final = 12
_CRC_FROM: Final = 21
HEADER_BYTES: Final = _HEAD.size + _BODY.size
_CONTROL: Final = 0x20
_COMPRESSION: Final = 0x07
_GZIP: Final = 1
#: The argument of zlib that selects the gzip format.
_GZIP_WINDOW: Final = 31
#: Number of batches whose record numbers are cached.
_KEPT_BATCHES: Final = 4_096
_RECORD_NUMBER: Final = struct.Struct(">Q")

NO_PRODUCER: Final = -1
#: The number in place of a record that compaction removed; the numbers of records begin at 1.
GONE: Final = 0
_KEYS: Final = 5
_TOMBSTONE_EVERY: Final = 11
#: Smallest number of a record that a broker, such as a group coordinator, writes itself. The number
#: consists of checksums of the record's key and value, 33 bits each; a tombstone has the checksum 0
#: for its value. The keys of such records never begin with `_CLIENT_KEY`.
_COORDINATORS: Final = 1 << 66
_CHECKSUM_BITS: Final = 33
_CLIENT_KEY: Final = b"key "


def key_of(number: int) -> int:
    """Return the key of record `number`: a small number for a client's record, else a checksum."""
    return number >> _CHECKSUM_BITS if number >= _COORDINATORS else number % _KEYS


def is_tombstone(number: int) -> bool:
    """Return whether record `number`, if it has a key, is a tombstone."""
    if number >= _COORDINATORS:
        return number & ((1 << _CHECKSUM_BITS) - 1) == 0
    return number % _TOMBSTONE_EVERY == 0


class ReadBatch(NamedTuple):
    """One stored batch; `numbers` are its record numbers by offset, GONE for removed records."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    numbers: tuple[int, ...]
    size_bytes: int

    @property
    def next_offset(self) -> int:
        """Offset after the batch's last record."""
        return self.base_offset + len(self.numbers)


class BrokenBatch(ValueError):
    """The error for bytes that are not a complete, valid batch."""


def encode_batch(
    numbers: Sequence[int],
    paddings: Sequence[int],
    *,
    timestamp_ms: int,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    keyed: bool = False,
) -> bytes:
    """Return a batch with a record for each number; a value has 8 bytes and the record's padding.

    A tombstone has no value.
    """
    records = bytearray()
    for delta, (number, padding) in enumerate(zip(numbers, paddings, strict=True)):
        packed = _RECORD_NUMBER.pack(number)
        value, headers = _sized(packed + bytes(padding)), _varint(0)
        if keyed and is_tombstone(number):
            value, headers = _varint(-1), _varint(1) + _sized(b"n") + _sized(packed)
        key = _sized(b"%s%d" % (_CLIENT_KEY, key_of(number))) if keyed else _varint(-1)
        record = b"\0" + _varint(0) + _varint(delta) + key + value + headers
        records += _varint(len(record)) + record
    count = len(numbers)
    body = _BODY.pack(
        0, count - 1, timestamp_ms, timestamp_ms, producer_id, producer_epoch, base_sequence, count
    )
    covered = body + records
    length = _HEAD.size - _LOG_OVERHEAD + len(covered)
    return _HEAD.pack(0, length, -1, 2, crc32c.crc32c(covered)) + covered


def read_batches(data: bytes | bytearray | memoryview) -> Iterator[ReadBatch]:
    """Yield the complete batches in `data`; ignore an incomplete batch at the end.

    Raises BrokenBatch for an invalid batch.
    """
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_BYTES:
        length = int.from_bytes(view[position + _LENGTH_AT : position + _LOG_OVERHEAD], "big")
        size = _LOG_OVERHEAD + length
        if size < HEADER_BYTES:
            raise BrokenBatch(f"a batch of {size} bytes at position {position}")
        if position + size > len(view):
            return
        yield _read_batch(view[position : position + size])
        position += size


def _read_batch(view: memoryview) -> ReadBatch:
    base_offset, _, leader_epoch, magic, crc = _HEAD.unpack_from(view)
    if magic != 2:
        raise BrokenBatch(f"magic {magic} at offset {base_offset}")
    if crc32c.crc32c(view[_CRC_FROM:]) != crc:
        raise BrokenBatch(f"wrong CRC at offset {base_offset}")
    attributes, last_delta, _, _, producer_id, epoch, sequence, count = _BODY.unpack_from(
        view, _HEAD.size
    )
    if attributes & _CONTROL or attributes & _COMPRESSION > _GZIP:
        raise BrokenBatch(f"attributes {attributes:#x} at offset {base_offset}")
    if not 0 <= count <= last_delta + 1:
        raise BrokenBatch(f"{count} records up to delta {last_delta} at offset {base_offset}")
    try:
        numbers = _read_numbers(_plain_records(view), count, last_delta + 1)
    except BrokenBatch as error:
        raise BrokenBatch(f"{error} at offset {base_offset}") from None
    return ReadBatch(base_offset, leader_epoch, producer_id, epoch, sequence, numbers, len(view))


def _plain_records(batch: memoryview) -> bytes:
    """Return the decompressed records of one batch."""
    if not batch[HEADER_BYTES - _BODY.size + 1] & _GZIP:
        return bytes(batch[HEADER_BYTES:])
    try:
        return zlib.decompress(batch[HEADER_BYTES:], _GZIP_WINDOW)
    except zlib.error as error:
        raise BrokenBatch(f"damaged gzip data: {error}") from None


@functools.lru_cache(maxsize=_KEPT_BATCHES)
def _read_numbers(records: bytes, count: int, offsets: int) -> tuple[int, ...]:
    """Return the record numbers of a batch.

    The record numbers of a batch are cached, because all replicas and consumers read the same
    bytes.
    """
    numbers = [GONE] * offsets
    position = 0
    last = -1
    for _ in range(count):
        size, position = _read_varint(records, position)
        delta, number = _read_record(records[position : position + size])
        if not last < delta < offsets:
            raise BrokenBatch(f"an offset delta of {delta} after {last}, below {offsets}")
        numbers[delta] = number
        last = delta
        position += size
    if position != len(records):
        raise BrokenBatch(f"{len(records) - position} bytes behind the records")
    return tuple(numbers)


def _fields(record: bytes) -> tuple[int, bytes, int, int]:
    """Return offset delta, key, size of the value (-1 without a value) and its position."""
    _, position = _read_varint(record, 1)  # the timestamp delta
    delta, position = _read_varint(record, position)
    size, position = _read_varint(record, position)
    key = record[position : position + max(size, 0)]
    size, position = _read_varint(record, position + len(key))
    return delta, key, size, position


def _read_record(record: bytes) -> tuple[int, int]:
    """Return (offset delta, number) of a record."""
    delta, key, size, position = _fields(record)
    if key and not key.startswith(_CLIENT_KEY):
        value = 0 if size < 0 else 1 + crc32c.crc32c(record[position : position + size])
        return delta, _COORDINATORS | crc32c.crc32c(key) << _CHECKSUM_BITS | value
    if size < 0:
        for _ in range(2):  # read the number of headers, then the size of the first header's name
            size, position = _read_varint(record, position)
        position += size
        size, position = _read_varint(record, position)
    if size < _RECORD_NUMBER.size:
        raise BrokenBatch(f"a value of {size} bytes")
    number: int = _RECORD_NUMBER.unpack_from(record, position)[0]
    return delta, number


def read_records(data: bytes | bytearray | memoryview) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of each record in complete batches; a missing key or value is empty bytes.

    Raises BrokenBatch for invalid bytes.
    """
    position = 0
    for batch in read_batches(data):
        records = _plain_records(memoryview(data)[position : position + batch.size_bytes])
        position += batch.size_bytes
        at = 0
        while at < len(records):
            size, at = _read_varint(records, at)
            record = records[at : at + size]
            _, key, value_size, place = _fields(record)
            yield key, record[place : place + max(value_size, 0)]
            at += size


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while True:
        byte = zigzag & 0x7F
        zigzag >>= 7
        if zigzag:
            out.append(byte | 0x80)
        else:
            out.append(byte)
            return bytes(out)


def _read_varint(view: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = view[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
