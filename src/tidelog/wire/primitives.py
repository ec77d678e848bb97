"""The protocol's primitive encodings as plain functions: varints, zigzag, compact lengths.

The generated codecs inline the common cases and call these for the rest; headers and tests use them
directly. Decoders take a buffer and a position and return (value, next position). They raise
ProtocolError for values that the protocol forbids. They may raise IndexError at the buffer's end,
which the codec's outer layer turns into a ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tidelog.core.errors import ProtocolError

#: The types that bytes and records fields accept on encode; decoding gives memoryviews of bytes.
Buffer = bytes | bytearray | memoryview
#: A records field: one buffer, or several that follow each other on the wire (log slices).
Records = Buffer | Sequence[Buffer]

_UINT32_MAX = 0xFFFFFFFF

#: The encodings of 0 .. 127, by value: nearly every length on the wire.
ONE_BYTE = [bytes((value,)) for value in range(128)]


def encode_uvarint(value: int) -> bytes:
    """Return unsigned LEB128; `value` must not be negative."""
    if 0 <= value < 0x80:
        return ONE_BYTE[value]
    if value < 0:
        raise ValueError(f"unsigned varint of {value}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 32 bits."""
    first = buf[pos]
    if first < 0x80:
        return first, pos + 1
    return decode_long_uvarint(first, buf, pos + 1)


def decode_long_uvarint(first: int, buf: Buffer, pos: int) -> tuple[int, int]:
    """Return an unsigned varint whose `first` byte, at `pos - 1`, had its high bit set."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _UINT32_MAX:
                break
            return value, pos
    raise ProtocolError("a varint of more than 32 bits")


def decode_uvarlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 64 bits."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise ProtocolError("a varint of more than 64 bits")
            return value, pos
        shift += 7
        if shift > 63:
            raise ProtocolError("a varint of more than 64 bits")


def zigzag(value: int) -> int:
    """Return an unsigned number that keeps small magnitudes small: 0, -1, 1, -2 become 0 to 3."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    """Return the inverse of `zigzag`."""
    return (value >> 1) ^ -(value & 1)


def encode_varint(value: int) -> bytes:
    """Return the bytes of a signed (zigzag) varint, of 32 or 64 bits."""
    return encode_uvarint(zigzag(value))


def decode_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return a signed (zigzag) varint of at most 32 bits."""
    value, pos = decode_uvarint(buf, pos)
    return (value >> 1) ^ -(value & 1), pos


def decode_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return a signed (zigzag) varint of at most 64 bits."""
    value, pos = decode_uvarlong(buf, pos)
    return (value >> 1) ^ -(value & 1), pos


def encode_nullable_string(text: str | None) -> bytes:
    """Return the old form: two bytes of length, -1 for null.

    Raises ValueError above 32,767 bytes.
    """
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    if len(raw) > 0x7FFF:
        raise ValueError(f"a string of {len(raw)} bytes, more than 32,767")
    return struct.pack(">h", len(raw)) + raw


def encode_compact_string(text: str) -> bytes:
    """Return the flexible form: length plus one as an unsigned varint."""
    raw = text.encode()
    return encode_uvarint(len(raw) + 1) + raw


def skip_tagged_fields(count: int, buf: Buffer, pos: int, end: int) -> int:
    """Return the position after `count` tagged fields, all unknown here."""
    for _ in range(count):
        _tag, pos = decode_uvarint(buf, pos)
        size, pos = decode_uvarint(buf, pos)
        pos += size
        if pos > end:
            raise ProtocolError(f"a tagged field of {size} bytes reaches beyond the message")
    return pos
