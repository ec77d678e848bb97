"""The position of an offset in a log file, found by the index and a walk over batches.

The index is only a hint. An index entry counts only if a batch header of this segment begins at its
position, with a base offset at or below the wanted offset. Without a usable index entry, the walk
starts at byte 0. The walk reads batch headers only. Functions raise OSError; the caller handles a
file that ends early.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import Final

from tidelog.core.limits import MIB
from tidelog.spark.segments.batch_scan import (
    HEADER_BYTES,
    MAGIC,
    header_at,
)

_ENTRY_BYTES: Final = 8
_STEP_BYTES: Final = MIB
_STEP_ROWS: Final = 1 << 14


def floor_position(path: str, base_offset: int, size: int, offset: int) -> int:
    """Return the position of the batch with `offset`, or of an earlier batch."""
    wanted = offset - base_offset
    if wanted <= 0:
        return 0
    try:
        with open(f"{path.removesuffix('.log')}.index", "rb") as index:
            descriptor = index.fileno()
            count = os.fstat(descriptor).st_size // _ENTRY_BYTES
            place = bisect_right(range(count), wanted, key=lambda n: _entry(descriptor, n)[0])
            position = _entry(descriptor, place - 1)[1] if place else 0
    except OSError:
        return 0  # without an index the walk starts at the beginning
    return position if _is_before(path, base_offset, size, position, offset) else 0


def _entry(descriptor: int, number: int) -> tuple[int, int]:
    """Return entry `number` of an index: relative offset and position.

    An entry of zeros is preallocated and unused; its returned offset is above all other offsets.
    """
    data = os.pread(descriptor, _ENTRY_BYTES, number * _ENTRY_BYTES)
    relative, position = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:], "big")
    if not relative and not position and number:
        return 2**31, 0
    return relative, position


def _is_before(path: str, base_offset: int, size: int, position: int, offset: int) -> bool:
    if not 0 < position < size:
        return False
    with open(path, "rb") as log:
        header = os.pread(log.fileno(), HEADER_BYTES, position)
    if len(header) < HEADER_BYTES:
        return False
    base, length, magic = header_at(header, 0)
    return magic == MAGIC and length >= HEADER_BYTES and base_offset <= base <= offset
