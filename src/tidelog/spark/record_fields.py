"""The fields of many records at once, as positions and lengths; no bytes are copied.

A record begins where the previous record ends, so a plain loop walks the lengths of records. Each
other field is read by numpy, for all records together. Varints are read byte by byte: each round
reads one byte in all records whose varint goes on. This module knows the record format v2 (KIP-98),
but not batches and Arrow. All positions are positions in one buffer with all records, the arena.
Malformed records raise CorruptRecordsError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError

Ints = npt.NDArray[np.int64]

_MAX_VARINT_BITS = 63
_MAX_LENGTH_SHIFT = 28
_ONE = np.uint64(1)


class CorruptRecordsError(TidelogError):
    """The error for record bytes that contradict their batch header."""


def walk_records(
    arena: bytes, position: int, end: int, count: int, append: Callable[[int], Any]
) -> None:
    """Call `append` with the end of each of `count` records from `position` on.

    The records must fill the bytes up to `end` exactly.
    """
    try:
        for _ in range(count):
            size = arena[position]
            if size < 0x80:
                position += 1 + (size >> 1)
            else:
                size &= 0x7F
                shift = 7
                while True:
                    position += 1
                    byte = arena[position]
                    if byte < 0x80:
                        break
                    size |= (byte & 0x7F) << shift
                    shift += 7
                    if shift > _MAX_LENGTH_SHIFT:
                        raise CorruptRecordsError("the length of a record has more than 32 bits")
                position += 1 + ((size | byte << shift) >> 1)
            append(position)
    except IndexError:
        position = -1
    if position != end:
        raise CorruptRecordsError(f"{count} records do not fill the {end} bytes of their batch")


def read_varints(raw: npt.NDArray[np.uint8], positions: Ints) -> tuple[Ints, Ints]:
    """Return the zigzag varint (of up to 64 bits) at each position, and the position after each."""
    try:
        value = raw[positions].astype(np.uint64)
        after = positions + 1
        going = np.flatnonzero(value >= 0x80)
        if going.size:
            value[going] &= np.uint64(0x7F)
        shift = 7
        while going.size:
            if shift > _MAX_VARINT_BITS:
                raise CorruptRecordsError("a varint of more than 64 bits")
            byte = raw[after[going]].astype(np.uint64)
            value[going] |= (byte & np.uint64(0x7F)) << np.uint64(shift)
            after[going] += 1
            going = going[byte >= 0x80]
            shift += 7
    except IndexError:
        raise CorruptRecordsError("a record reaches beyond its batch") from None
    return ((value >> _ONE) ^ (np.uint64(0) - (value & _ONE))).view(np.int64), after


@dataclass(slots=True)
class Pieces:
    """Byte ranges of keys or values in the buffer of all records, ascending; `null` marks nulls."""

    starts: Ints
    ends: Ints
    null: npt.NDArray[np.bool_]


@dataclass(slots=True)
class RecordFields:
    """The fields of many records, with one row for each record."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    keys: Pieces
    values: Pieces
    header_counts: Ints
    #: The position at which each record's headers begin; `ends` has the ends of the records.
    headers_at: Ints
    ends: Ints


def _piece(raw: npt.NDArray[np.uint8], positions: Ints, limits: Ints, what: str) -> Pieces:
    lengths, starts = read_varints(raw, positions)
    null = lengths < 0
    ends = starts + np.where(null, 0, lengths)
    # For a length near 2**63, start + length may overflow; the end then lies before the start.
    if ((lengths < -1) | (ends > limits) | (ends < starts)).any():
        raise CorruptRecordsError(f"the {what} of a record reaches beyond it")
    return Pieces(starts, ends, null)


def read_fields(raw: npt.NDArray[np.uint8], starts: Ints, ends: Ints) -> RecordFields:
    """Return the fields of records; record i has the bytes `[starts[i], ends[i])`.

    Raises CorruptRecordsError.
    """
    sizes, position = read_varints(raw, starts)
    if (position + sizes != ends).any():
        raise CorruptRecordsError("a record has a negative length")
    position += 1  # the record's attributes, which are unused
    timestamp_deltas, position = read_varints(raw, position)
    offset_deltas, position = read_varints(raw, position)
    keys = _piece(raw, position, ends, "key")
    values = _piece(raw, keys.ends, ends, "value")
    header_counts, headers_at = read_varints(raw, values.ends)
    if (header_counts < 0).any() or (headers_at > ends).any():
        raise CorruptRecordsError("the headers of a record reach beyond it")
    if (headers_at[header_counts == 0] != ends[header_counts == 0]).any():
        raise CorruptRecordsError("bytes follow the last field of a record")
    return RecordFields(
        timestamp_deltas, offset_deltas, keys, values, header_counts, headers_at, ends
    )


@dataclass(slots=True)
class HeaderFields:
    """All headers of many records, ordered by record and by place in the record."""

    keys: Pieces
    values: Pieces


def read_headers(raw: npt.NDArray[np.uint8], fields: RecordFields) -> HeaderFields:
    """Return all headers of the records; each round reads the next header of every record.

    Raises CorruptRecordsError for malformed headers.
    """
    position = fields.headers_at.copy()
    going = np.flatnonzero(fields.header_counts)
    rounds: list[tuple[Pieces, Pieces]] = []
    place = 0
    while going.size:
        keys = _piece(raw, position[going], fields.ends[going], "header key")
        if keys.null.any():
            raise CorruptRecordsError("a header without a key")
        values = _piece(raw, keys.ends, fields.ends[going], "header value")
        rounds.append((keys, values))
        position[going] = values.ends
        place += 1
        going = going[fields.header_counts[going] > place]
    if (position != fields.ends).any():
        raise CorruptRecordsError("bytes follow the last header of a record")
    return HeaderFields(
        _in_order([k for k, _ in rounds], [k for k, _ in rounds]),
        _in_order([v for _, v in rounds], [k for k, _ in rounds]),
    )


def _in_order(pieces: list[Pieces], keys: list[Pieces]) -> Pieces:
    if not pieces:
        none = np.empty(0, dtype=np.int64)
        return Pieces(none, none, np.empty(0, dtype=np.bool_))
    order = np.argsort(np.concatenate([each.starts for each in keys]), kind="stable")
    return Pieces(
        np.concatenate([each.starts for each in pieces])[order],
        np.concatenate([each.ends for each in pieces])[order],
        np.concatenate([each.null for each in pieces])[order],
    )
