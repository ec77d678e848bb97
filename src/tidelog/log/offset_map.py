"""The last offset of each key in the part of a log that is being compacted; bounded in memory.

A key of 16 bytes or more is kept as its digest of 16 bytes, so that the size of an entry does not
depend on what clients send. When the map is full, what follows stays as it is until the next run.
Source: SkimpyOffsetMap, which needs 24 bytes an entry; a dictionary needs more.
"""

from __future__ import annotations

from hashlib import blake2b

#: What an entry costs at most: its key (49 bytes), its offset (32), its share of a dictionary while
#: it grows (94).
ENTRY_BYTES = 176
_DIGEST_BYTES = 16


class OffsetMap:
    """Key -> the largest offset at which it stands."""

    __slots__ = ("_capacity", "_offsets", "latest_offset")

    def __init__(self, max_bytes: int, load_factor: float = 1.0) -> None:
        self._capacity = max(1, int(max_bytes * load_factor) // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        #: Everything up to here is in the map; -1 before anything was looked at.
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no further batch should be looked at."""
        return len(self._offsets) >= self._capacity

    def put(self, key: bytes, offset: int) -> None:
        """Note a record; offsets rise."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        self._offsets[key] = offset

    def offset_of(self, key: bytes) -> int:
        """The largest offset noted for the key, -1 for none."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)
