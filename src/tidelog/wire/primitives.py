"""Functions for the protocol's primitive encodings: varints, zigzag, compact lengths.

The generated codecs inline the common cases and call these functions for other cases. `codec` (for
headers) and tests call the functions directly. Decoders take a buffer and a position and return
(value, next position). Decoders raise ProtocolError for values that the protocol forbids. Decoders
may raise IndexError at the buffer's end, which `codec` turns into a ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tidelog.core.errors import ProtocolError

#: Types that bytes and records fields accept in encoding; decoding returns memoryviews.
Buffer = bytes | bytearray | memoryview
#: A value of a records field: one buffer, or several consecutive buffers (log slices).
Records = Buffer | Sequence[Buffer]

_UINT32_MAX = 0xFFFFFFFF

#: The varint encodings of 0 to 127; nearly all lengths on the wire are in this range.
ONE_BYTE = [bytes((value,)) for value in range(128)]


def encode_uvarint(value: int) -> bytes:
    """Return the unsigned LEB128 encoding of a non-negative value."""
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
    """Return the zigzag encoding of a signed number: 0, -1, 1, -2 become 0 to 3."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    """Return the signed number of a zigzag encoding."""
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
    """Return a string in non-flexible form, with two bytes of length (-1 for null).

    Raises ValueError above 32,767 bytes.
    """
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    if len(raw) > 0x7FFF:
        raise ValueError(f"a string of {len(raw)} bytes, more than 32,767")
    return struct.pack(">h", len(raw)) + raw


def encode_compact_string(text: str) -> bytes:
    """Return a string in flexible form, with the length plus one as an unsigned varint."""
    raw = text.encode()
    return encode_uvarint(len(raw) + 1) + raw


def skip_tagged_fields(count: int, buf: Buffer, pos: int, end: int) -> int:
    """Return the position after `count` unknown tagged fields."""
    for _ in range(count):
        _tag, pos = decode_uvarint(buf, pos)
        size, pos = decode_uvarint(buf, pos)
        pos += size
        if pos > end:
            raise ProtocolError(f"a tagged field of {size} bytes reaches beyond the message")
    return pos
