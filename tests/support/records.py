"""Records and batches of chosen bytes, for what a walk over them must find fault with."""

from __future__ import annotations

import struct

from tidelog.records import compression
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, build_batch


def zigzag(number: int) -> bytes:
    """A number of up to 64 bits as records hold it."""
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def record_bytes(
    number: int,
    *,
    delta: int | None = None,
    timestamp_delta: int = 0,
    size: int | None = None,
    key_size: int = 1,
    value_size: int = 1,
    headers: int = 0,
    tail: bytes | None = None,
) -> bytes:
    """The record of an index, with key `k` and value `v`; what is given is wrong in it."""
    body = b"\0" + zigzag(timestamp_delta) + zigzag(number if delta is None else delta)
    body += zigzag(key_size) + b"k" + zigzag(value_size) + b"v"
    body += zigzag(headers) if tail is None else tail
    return zigzag(len(body) if size is None else size) + body


def framed(
    payload: bytes | bytearray,
    count: int,
    codec: int = compression.NONE,
    compressed: bytes | None = None,
) -> bytearray:
    """A batch with a right header, of these records, whose base timestamp is 5.

    `compressed`: the records as another client compressed them.
    """
    data = build_batch([NewRecord(None, b"v", 5)], codec=codec)[:61]
    data += compression.compress(codec, payload) if compressed is None else compressed
    data[8:12] = struct.pack(">i", len(data) - 12)
    data[23:27] = struct.pack(">i", count - 1)
    data[57:61] = struct.pack(">i", count)
    data[17:21] = struct.pack(">I", BatchView(data).computed_crc())
    return data
