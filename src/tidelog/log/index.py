"""Offset index and time index of a segment, in memory and in the format of Kafka's files.

An offset index entry is (offset - base offset, position) as two big-endian int32. In memory an
entry is one int64; such entries sort by offset, so a bisection finds an entry. An offset index is
an `array('q')` of these entries, and its file has the same entries with their bytes swapped. A time
index entry is (largest timestamp so far as int64, offset - base offset as int32). Indexes are
caches (DESIGN.md, rule 8). An index is written when its segment rolls or the log closes, is checked
when read, and is rebuilt from the batches if the check fails. Sources: OffsetIndex, TimeIndex.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
#: Largest offset in an index, relative to the segment's base offset; an entry has 31 bits for it.
MAX_RELATIVE_OFFSET = 2**31 - 1

_TIME_ENTRY = struct.Struct(">qi")
_LOW = 0xFFFF_FFFF


class DamagedIndex(ValueError):
    """The error for an index file whose content cannot belong to its segment."""


class OffsetIndex:
    """Sparse map from offset to position: entries (last offset of a batch, its start position)."""

    __slots__ = ("_entries", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._entries = array("q")

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, offset: int, position: int) -> None:
        """Add an entry for a batch that lies after all indexed batches."""
        self._entries.append((offset - self.base_offset) << 32 | position)

    def floor(self, offset: int) -> int:
        """Return the position of the batch at which a scan for `offset` starts.

        The position is 0 if the index has no entry at or before `offset`.
        """
        relative = offset - self.base_offset
        if relative < 0:
            return 0
        found = bisect_right(self._entries, relative << 32 | _LOW)
        return self._entries[found - 1] & _LOW if found else 0

    def least_at_floor(self, offset: int) -> int:
        """Return a lower bound of the offsets of all batches at or after position
        `floor(offset)`.
        """
        found = bisect_right(self._entries, max(offset - self.base_offset, 0) << 32 | _LOW)
        return self.base_offset + ((self._entries[found - 2] >> 32) + 1 if found > 1 else 0)

    def batch_start_before(self, position: int, after: int) -> int:
        """Return the largest indexed batch position in the range (after, position], or `after` if
        none.
        """
        # Positions rise from entry to entry like offsets, so a bisection by position works, too.
        found = bisect_right(self._entries, position, key=_position)
        start = self._entries[found - 1] & _LOW if found else 0
        return max(start, after)

    def last_position(self) -> int:
        """Return the position of the last entry, or 0 without entries."""
        return self._entries[-1] & _LOW if self._entries else 0

    def last_offset(self) -> int:
        """Return the offset of the last entry, or the base offset without entries."""
        if not self._entries:
            return self.base_offset
        return self.base_offset + (self._entries[-1] >> 32)

    def truncate_to(self, offset: int) -> None:
        """Drop entries of batches that end at or beyond `offset`."""
        keep = bisect_left(self._entries, (offset - self.base_offset) << 32)
        del self._entries[keep:]

    def entries(self) -> list[tuple[int, int]]:
        """Return (offset, position) of all entries."""
        return [(self.base_offset + (entry >> 32), entry & _LOW) for entry in self._entries]

    def to_bytes(self) -> bytes:
        """Return the content of the `.index` file."""
        entries = self._entries
        if sys.byteorder == "little":
            entries = entries[:]
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes, log_bytes: int) -> OffsetIndex:
        """Read an `.index` file of a segment with `log_bytes` bytes. Raises DamagedIndex.

        Kafka pads the index file of an active segment with zeros; the entries end where the zeros
        begin.
        """
        if len(data) % OFFSET_ENTRY_BYTES:
            raise DamagedIndex(f"{len(data)} bytes are not whole entries")
        index = cls(base_offset)
        entries = index._entries
        entries.frombytes(data)
        if sys.byteorder == "little":
            entries.byteswap()
        while entries and entries[-1] == 0:
            entries.pop()
        previous_position = previous_offset = -1
        for entry in entries:
            position, offset = entry & _LOW, entry >> 32
            if position <= previous_position or offset <= previous_offset:
                raise DamagedIndex(f"entries do not rise at position {position}")
            previous_position, previous_offset = position, offset
        if entries and previous_position >= log_bytes:
            raise DamagedIndex(f"points at byte {previous_position} of a log of {log_bytes} bytes")
        return index


def _position(entry: int) -> int:
    return entry & _LOW


class TimeIndex:
    """Sparse map from timestamp to offset, with entries (largest timestamp so far, its offset)."""

    __slots__ = ("_offsets", "_timestamps", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than the last entry's."""
        if timestamp_ms > (self._timestamps[-1] if self._timestamps else -1):
            self._timestamps.append(timestamp_ms)
            self._offsets.append(offset - self.base_offset)

    def floor(self, timestamp_ms: int) -> int:
        """Return the offset from which to scan for the first record of `timestamp_ms` or later.

        Every record before the returned offset has a timestamp earlier than `timestamp_ms`.
        """
        found = bisect_left(self._timestamps, timestamp_ms)
        return self.base_offset + (self._offsets[found - 1] if found else 0)

    def last(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry, or (-1, base offset) without entries."""
        if not self._timestamps:
            return -1, self.base_offset
        return self._timestamps[-1], self.base_offset + self._offsets[-1]

    def truncate_to(self, offset: int) -> None:
        """Drop entries at or beyond `offset`."""
        keep = bisect_left(self._offsets, offset - self.base_offset)
        del self._timestamps[keep:], self._offsets[keep:]

    def entries(self) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of all entries."""
        base = self.base_offset
        return [
            (timestamp, base + offset)
            for timestamp, offset in zip(self._timestamps, self._offsets, strict=True)
        ]

    def to_bytes(self) -> bytes:
        """Return the content of the `.timeindex` file."""
        pack = _TIME_ENTRY.pack
        pairs = zip(self._timestamps, self._offsets, strict=True)
        return b"".join([pack(timestamp, offset) for timestamp, offset in pairs])

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes) -> TimeIndex:
        """Read a `.timeindex` file, ignoring zeros at its end. Raises DamagedIndex."""
        if len(data) % TIME_ENTRY_BYTES:
            raise DamagedIndex(f"{len(data)} bytes are not whole entries")
        index = cls(base_offset)
        entries = list(_TIME_ENTRY.iter_unpack(data))
        while entries and entries[-1] == (0, 0):
            entries.pop()
        previous_timestamp = previous_offset = -1
        for timestamp, offset in entries:
            if timestamp <= previous_timestamp or offset < previous_offset:
                raise DamagedIndex(f"entries do not rise at timestamp {timestamp}")
            index._timestamps.append(timestamp)
            index._offsets.append(offset)
            previous_timestamp, previous_offset = timestamp, offset
        return index
