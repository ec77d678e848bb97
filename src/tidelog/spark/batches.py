"""Splits fetched bytes into record batches: header fields, checked CRC, the bytes of the records.

A chunk as a broker answers it: whole batches, and at the end perhaps a part of one, which is left
alone. Raises CorruptBatchError for a batch that is damaged or of a format older than v2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog.core.errors import TidelogError

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT: Final = 8
#: Bytes before what `length` counts: base offset and the length itself.
_PREFIX_BYTES: Final = 12
#: The CRC covers everything from the attributes on.
_CRC_FROM: Final = 21
_MAGIC: Final = 2

_COMPRESSION_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20


class CorruptBatchError(TidelogError):
    """A record batch that cannot be read: damaged, or not of format v2."""


class DataBatch(NamedTuple):
    """One batch; `payload` holds its records as stored, compressed with `codec` (0: not)."""

    base_offset: int
    last_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    attributes: int
    record_count: int
    payload: memoryview

    @property
    def codec(self) -> int:
        """Kafka's number of the compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records bear the broker's time, `max_timestamp_ms`."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker of a transaction and no records of a user."""
        return bool(self.attributes & _CONTROL)


def split_batches(chunk: memoryview) -> Iterator[DataBatch]:
    """The whole batches of a chunk, in order. Raises CorruptBatchError."""
    position, size = 0, len(chunk)
    while size - position >= _HEADER.size:
        length = int.from_bytes(chunk[position + _LENGTH_AT : position + _PREFIX_BYTES], "big")
        end = position + _PREFIX_BYTES + length
        if end > size:
            return
        batch = chunk[position:end]
        if batch[16] != _MAGIC:
            raise CorruptBatchError(f"a batch of format {batch[16]}; only format 2 is read")
        if length < _HEADER.size - _PREFIX_BYTES:
            raise CorruptBatchError(f"a batch claims {length} bytes, less than its header has")
        header = _HEADER.unpack_from(batch)
        base_offset, _length, _epoch, _magic, crc, attributes, last_delta = header[:7]
        base_timestamp, max_timestamp = header[7:9]
        count = header[12]
        if crc32c(batch[_CRC_FROM:]) != crc:
            raise CorruptBatchError(f"the batch at offset {base_offset} fails its CRC")
        if count < 0 or last_delta < 0 or count > last_delta + 1:
            raise CorruptBatchError(
                f"the batch at offset {base_offset} claims {count} records up to {last_delta}"
            )
        yield DataBatch(base_offset, base_offset + last_delta, base_timestamp, max_timestamp,
                        attributes, count, batch[_HEADER.size :])
        position = end
