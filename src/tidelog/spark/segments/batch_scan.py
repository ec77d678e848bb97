"""The scan over the batches of a log file: one row of numbers for each batch header.

A row has the header's fields, the batch's position in the file and the checksum of its bytes. The
compiled scan (`_scan.c`, built at installation) takes about 20 ns a batch and computes CRC-32C with
the processor's instruction; the Python scan takes 3 µs. The compiled scan and the Python scan give
the same rows for the same bytes. The scan decides nothing about a batch except where the next batch
starts. A buffer whose next bytes are no batch header ends the scan, and the caller gets the reason
as a `ScanEnd`. Source: DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

if TYPE_CHECKING:
    compiled: Any
else:
    try:
        from tidelog.spark.segments import _scan as compiled
    except ImportError:
        compiled = None

#: Version of arguments and result that this module requires of the compiled scan.
_VERSION: Final = 1

HEADER_BYTES: Final = 61
OVERHEAD_BYTES: Final = 12
MIN_LENGTH: Final = HEADER_BYTES - OVERHEAD_BYTES
MAGIC: Final = 2
_CRC_FROM: Final = 21
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16

COLUMNS: Final = (
    "position",
    "size",
    "base",
    "last",
    "epoch",
    "attributes",
    "crc",
    "computed_crc",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "base_sequence",
    "count",
)
ROW: Final = np.dtype([(name, np.int64) for name in COLUMNS])
Rows = npt.NDArray[np.void]


class ScanEnd(IntEnum):
    """The reason for which a scan ended."""

    #: The array of rows is full, so more batches may follow.
    FULL = 0
    #: The buffer ends within the next batch, or before it.
    SHORT = 1
    #: The next batch claims to be smaller than a header.
    BAD_LENGTH = 2
    #: The next batch has a magic other than 2.
    BAD_MAGIC = 3


def scan_rows(
    buffer: bytes | bytearray | memoryview,
    at: int,
    end: int,
    origin: int,
    rows: Rows,
    check_crc: bool,
) -> tuple[int, int, ScanEnd]:
    """Fill `rows` from `buffer[at:end]`; return their number, the next position and the ScanEnd.

    `origin` is the position of `buffer[0]` in the file. Without `check_crc` the scan reads only
    headers, the last batch may reach beyond `end`, and `computed_crc` is the batch's own `crc`.
    """
    if compiled is not None and compiled.VERSION == _VERSION:
        count, after, stop = compiled.scan_rows(buffer, at, end, origin, rows, check_crc)
        return count, after, ScanEnd(stop)
    return scan_in_python(buffer, at, end, origin, rows, check_crc)


def scan_in_python(
    buffer: bytes | bytearray | memoryview,
    at: int,
    end: int,
    origin: int,
    rows: Rows,
    check_crc: bool,
) -> tuple[int, int, ScanEnd]:
    """Do the same as `scan_rows`, without the compiled scan."""
    view = memoryview(buffer)
    if not 0 <= at <= end <= len(view):
        raise ValueError(f"bytes {at} to {end} are not in a buffer of {len(view)}")
    found: list[tuple[int, ...]] = []
    stop = ScanEnd.FULL
    while len(found) < len(rows):
        left = end - at
        if left < HEADER_BYTES:
            stop = ScanEnd.SHORT
            break
        fields = _HEADER.unpack_from(view, at)
        base, length, epoch, magic, crc, attributes, delta = fields[:7]
        if length < MIN_LENGTH:
            stop = ScanEnd.BAD_LENGTH
            break
        if magic != MAGIC:
            stop = ScanEnd.BAD_MAGIC
            break
        size = OVERHEAD_BYTES + length
        if size > left and check_crc:
            stop = ScanEnd.SHORT
            break
        computed = crc32c(view[at + _CRC_FROM : at + size]) if check_crc else crc
        base_ms, max_ms, producer_id, _, sequence, count = fields[7:]
        last = (base + delta + 2**63) % 2**64 - 2**63
        found.append(
            (origin + at, size, base, last, epoch, attributes, crc, computed, base_ms, max_ms,
             producer_id, sequence, count)
        )  # fmt: skip
        at += size
        if size > left:
            stop = ScanEnd.SHORT
            break
    rows[: len(found)] = found
    return len(found), at, stop


def empty_rows(count: int) -> Rows:
    """Return an array with room for `count` rows."""
    return np.empty(count, dtype=ROW)


def header_at(buffer: bytes | bytearray | memoryview, at: int) -> tuple[int, int, int]:
    """Return (base offset, size, magic) from the 17 bytes at a position, without any check."""
    base = int.from_bytes(buffer[at : at + _LENGTH_AT], "big", signed=True)
    length = int.from_bytes(buffer[at + _LENGTH_AT : at + OVERHEAD_BYTES], "big", signed=True)
    return base, OVERHEAD_BYTES + length, buffer[at + _MAGIC_AT]


def is_compiled() -> bool:
    """Return whether the compiled scan is in use."""
    return compiled is not None and compiled.VERSION == _VERSION
