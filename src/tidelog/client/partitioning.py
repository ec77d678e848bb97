"""The partition of a record, chosen as in Kafka's producers: equal keys get the same partition.

A key's partition is its murmur2 hash modulo the number of partitions. Records without a key go to
one partition until a batch is full, then to another partition (KIP-480). Sources:
BuiltInPartitioner, Utils.murmur2.
"""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return MurmurHash2 of 32 bits with Kafka's seed, unsigned."""
    size = len(data)
    whole = size & ~3
    h = (_SEED ^ size) & _MASK
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if size > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)
