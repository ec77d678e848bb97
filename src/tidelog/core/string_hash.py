"""The hash that assigns a group or a transactional id to its coordinating partition (rule G2).

Kafka takes Java's String.hashCode, which is defined over UTF-16 units, modulo the number of the
internal topic's partitions. All clients and brokers of a cluster must agree on the coordinating
partition, so tidelog uses Java's hash.
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
    """Return the partition whose leader coordinates the group or transactional id `name` (G2)."""
    return (java_string_hash(name) & 0x7FFF_FFFF) % partitions
