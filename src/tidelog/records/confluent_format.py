"""Confluent's wire format: a zero byte, a schema id of four bytes, then the record.

For Protobuf, the path of the message in the schema's file comes between id and record: a count and
that many indexes, as zigzag varints. A single zero byte, instead of the count and the indexes,
stands for the first message of the schema's file. This module queries no registry.
"""

from __future__ import annotations

import struct
from typing import Final

from tidelog.core.errors import TidelogError

_HEAD: Final = struct.Struct(">bi")
#: Maximum depth of nested messages, more than any real file has.
_MAX_DEPTH: Final = 64


class BadRecordError(TidelogError):
    """The error for a record that does not fit its schema; the message has the reason."""


def split_schema_id(data: bytes) -> tuple[int, int]:
    """Return the schema id and the position after it. Raises BadRecordError."""
    if len(data) < _HEAD.size:
        raise BadRecordError(
            f"a record of {len(data)} bytes is too short for Confluent's wire format"
        )
    magic, schema_id = _HEAD.unpack_from(data)
    if magic != 0:
        raise BadRecordError(
            f"a record begins with byte {data[0]}; Confluent's wire format begins with 0"
        )
    return schema_id, _HEAD.size


def split_message_path(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return the path of a Protobuf message and the position of the record.

    Raises BadRecordError for a malformed path.
    """
    count, position = _varint(data, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= _MAX_DEPTH:
        raise BadRecordError(f"a record has {count} message indexes; 1 to {_MAX_DEPTH} can be")
    path: list[int] = []
    for _ in range(count):
        index, position = _varint(data, position)
        path.append(index)
    return tuple(path), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    raw = shift = 0
    while shift < 64:
        if position >= len(data):
            raise BadRecordError("a record ends within its message indexes")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise BadRecordError("a message index of a record is longer than 64 bits")
