"""The partition that coordinates a group or a transactional id (rule G2).

Kafka takes Java's String.hashCode, which is defined over UTF-16 units, modulo the partitions of the
internal topic. Every client and broker of a cluster must agree, so it must be that hash.
"""

from __future__ import annotations

import struct
from typing import Final

_UNIT: Final = struct.Struct(">H")


def java_string_hash(text: str) -> int:
    """Return `text.hashCode()` of Java as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in _UNIT.iter_unpack(units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


def coordinating_partition(name: str, partitions: int) -> int:
    """Return the partition of an internal topic that owns `name` (G2)."""
    return (java_string_hash(name) & 0x7FFF_FFFF) % partitions
