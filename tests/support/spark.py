"""Record batches made by kafka-python, an implementation of the format that is not ours."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from crc32c import crc32c
from kafka.record.memory_records import MemoryRecordsBuilder

LOG_APPEND_TIME = 0x08
CONTROL = 0x20


@dataclass(frozen=True, slots=True)
class Row:
    """One record to write."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = 1_700_000_000_000
    headers: Sequence[tuple[str, bytes | None]] = field(default_factory=tuple)


def batch(rows: Sequence[Row], base_offset: int = 0, compression: int = 0) -> bytes:
    """One batch; `compression`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    builder = MemoryRecordsBuilder(2, compression, 1 << 30, 0)
    for row in rows:
        builder.append(
            timestamp=row.timestamp, key=row.key, value=row.value, headers=list(row.headers)
        )
    builder.close()
    return rewritten(bytes(builder.buffer()), base_offset=base_offset)


def rewritten(
    data: bytes,
    *,
    base_offset: int | None = None,
    attributes: int = 0,
    max_timestamp: int | None = None,
    count: int | None = None,
    last_offset_delta: int | None = None,
    records: bytes | None = None,
) -> bytes:
    """The batch with header fields replaced and a CRC that fits."""
    out = bytearray(data if records is None else data[:61] + records)
    struct.pack_into(">i", out, 8, len(out) - 12)
    if base_offset is not None:
        struct.pack_into(">q", out, 0, base_offset)
    (old,) = struct.unpack_from(">h", out, 21)
    struct.pack_into(">h", out, 21, old | attributes)
    if last_offset_delta is not None:
        struct.pack_into(">i", out, 23, last_offset_delta)
    if max_timestamp is not None:
        struct.pack_into(">q", out, 35, max_timestamp)
    if count is not None:
        struct.pack_into(">i", out, 57, count)
    struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)
