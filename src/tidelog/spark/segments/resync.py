"""The search for the next batch after bytes that are no batch.

A wrong length or magic hides where the next batch begins. The search takes the first position with
a header that fits the segment and a correct checksum over the batch's bytes. Bytes inside the value
of a record could count as a batch only if they are a whole batch. The search reads in steps, never
a whole file.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
from crc32c import crc32c

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MIB
from tidelog.spark.segments.batch_scan import (
    HEADER_BYTES,
    MAGIC,
    MIN_LENGTH,
    OVERHEAD_BYTES,
    Rows,
    ScanEnd,
    empty_rows,
    header_at,
    scan_rows,
)

_STEP_BYTES: Final = 4 * MIB
_STEP_ROWS: Final = 1 << 16
#: Maximum plausible size of a batch; no broker appends a larger batch.
_LARGEST_BATCH: Final = 256 * MIB
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_HIGH: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A batch, with the position where it begins and its base offset."""

    position: int
    base: int


def next_batch(descriptor: int, start: int, end: int, size: int, low: int) -> FoundBatch | None:
    """Return the first batch that begins in `[start, end)`; None if there is none.

    `size` is the file's size, and `low` the smallest base offset that may follow.
    """
    pattern = _header_pattern(low)
    at = start
    while at < end:
        # The read is longer than the step by one header, because a header may begin at the step's
        # end.
        data = os.pread(descriptor, min(_STEP_BYTES + HEADER_BYTES, size - at), at)
        if len(data) < HEADER_BYTES:
            return None
        for match in pattern.finditer(data):
            place = at + match.start()
            if place >= end or len(data) - match.start() < HEADER_BYTES:
                break
            base, length, magic = header_at(data, match.start())
            if magic == MAGIC and base >= low and _is_whole(descriptor, place, length, size):
                return FoundBatch(place, base)
        at += _STEP_BYTES
    return None


def _header_pattern(low: int) -> re.Pattern[bytes]:
    """Return a pattern of batch headers with a base offset less than about 2^32 above `low`."""
    upper = max(0, low) >> 32
    halves = b"|".join(re.escape(_HIGH.pack(half)) for half in (upper, upper + 1))
    return re.compile(b"(?=(?:" + halves + b").{12}\x02)", re.DOTALL)


def _is_whole(descriptor: int, at: int, length: int, size: int) -> bool:
    if not HEADER_BYTES <= length <= min(size - at, _LARGEST_BATCH):
        return False
    data = os.pread(descriptor, length, at)
    crc = int.from_bytes(data[_CRC_AT:_CRC_FROM], "big")
    return len(data) == length and crc32c(memoryview(data)[_CRC_FROM:]) == crc


def is_batch_start(descriptor: int, at: int, size: int, low: int) -> bool:
    """Return whether the file ends at `at`, or a batch with offset above `low` may begin there."""
    if at == size:
        return True
    header = os.pread(descriptor, HEADER_BYTES, at)
    if len(header) < HEADER_BYTES:
        return False
    base, length, magic = header_at(header, 0)
    return magic == MAGIC and length >= OVERHEAD_BYTES + MIN_LENGTH and base > low


def are_zeros(descriptor: int, start: int, end: int) -> bool:
    """Return whether all bytes are zero, as Kafka's preallocation and some crashes leave them."""
    for at in range(start, end, _STEP_BYTES):
        if any(os.pread(descriptor, min(_STEP_BYTES, end - at), at)):
            return False
    return True


def sound_batches(path: str, start: int, size: int, low: int) -> Iterator[Rows]:
    """Yield the batches of a file from `start` on that have a correct checksum, step by step.

    Bytes that are no batch are skipped; the next batch must have a base offset of at least `low`.
    Each step of the search overwrites the rows that the previous step yielded. Raises OSError.
    """
    rows = empty_rows(_STEP_ROWS)
    with open(path, "rb", buffering=0) as file:
        descriptor, at, wanted = file.fileno(), start, _STEP_BYTES
        while at < size:
            data = os.pread(descriptor, min(wanted, size - at), at)
            wanted = _STEP_BYTES
            count, after, stop = scan_rows(data, 0, len(data), at, rows, True)
            found = rows[:count]
            broken = first_with_wrong_length(descriptor, found, size)
            if broken is not None:
                found = found[:broken]
                at = int(rows["position"][broken])
            else:
                at += after
            yield found[found["crc"] == found["computed_crc"]]
            if broken is None and count:
                continue
            if broken is None and stop is ScanEnd.SHORT:
                claimed = header_at(data, 0)[1] if len(data) >= HEADER_BYTES else 0
                if len(data) < claimed <= size - at:
                    wanted = claimed
                    continue
            following = next_batch(descriptor, at + 1, size, size, low)
            if following is None:
                return
            at = following.position


def first_with_wrong_length(descriptor: int, rows: Rows, size: int) -> int | None:
    """Return the first row whose checksum is wrong and after which no batch begins."""
    for place in np.flatnonzero(rows["crc"] != rows["computed_crc"]):
        end = int(rows["position"][place] + rows["size"][place])
        if not is_batch_start(descriptor, end, size, int(rows["base"][place])):
            return int(place)
    return None
