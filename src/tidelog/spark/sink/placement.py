"""The partition of each row, chosen like Kafka's default partitioner, for many rows at once.

A partition in the row takes precedence over the key. A key chooses the partition by murmur2, so
that Java's producers and this sink agree about keys. Rows without partition and key fill one
partition up to a batch, then the next (KIP-480), starting with a random partition.
"""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.core.types import partitions_text
from tidelog.spark.record_encoding import partitions_of
from tidelog.spark.rows import is_compiled
from tidelog.spark.sink.row_columns import SinkError

Ints = npt.NDArray[np.int64]

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)


def binary_parts(column: pa.BinaryArray) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the offsets (one more than rows) and the bytes of a binary column."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    raw = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    return ends.astype(np.int64), raw


def murmur2_of_all(column: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """Return the hash of each key; a null key gets the hash of an empty key."""
    offsets, raw = binary_parts(column)
    starts, sizes = offsets[:-1], np.diff(offsets)
    raw = np.concatenate([raw, np.zeros(4, np.uint8)])
    # `words` is a view of the four bytes from each position on; zeros pad its last rows.
    words = np.lib.stride_tricks.as_strided(
        raw, shape=(max(len(raw) - 3, 0), 4), strides=(1, 1), writeable=False
    )
    h = _SEED ^ sizes.astype(np.uint32)
    whole = sizes >> 2
    for number in range(int(whole.max(initial=0))):
        going = np.flatnonzero(whole > number)
        everywhere = going.size == h.size
        at = starts + 4 * number if everywhere else starts[going] + 4 * number
        k = words[at].view("<u4").reshape(-1) * _M
        k = (k ^ (k >> np.uint32(24))) * _M
        if everywhere:
            h = h * _M ^ k
        else:
            h[going] = h[going] * _M ^ k
    left = sizes & 3
    going = np.flatnonzero(left)
    if going.size:
        tail = words[starts[going] + 4 * whole[going]].view("<u4").reshape(-1)
        kept = np.uint32(0xFFFFFFFF) >> (np.uint32(8) * (4 - left[going]).astype(np.uint32))
        h[going] = (h[going] ^ (tail & kept)) * _M
    h = (h ^ (h >> np.uint32(13))) * _M
    return h ^ (h >> np.uint32(15))


class TopicPlacement:
    """The partitions of one topic, chosen for the rows of one task."""

    def __init__(self, topic: str, partitions: int, batch_bytes: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._batch_bytes = max(batch_bytes, 1)
        self._sticky = random.randrange(partitions)
        self._filled = 0

    def place(
        self,
        rows: Ints,
        keys: pa.BinaryArray | None,
        sizes: Ints,
        wanted: pa.Int32Array | None,
    ) -> Ints:
        """Return a partition for each row.

        `rows` are row numbers in the task, for error messages; `sizes` are the sizes of the rows,
        and `wanted` the partitions that the rows name, null for a row without one. Raises SinkError
        for a partition that the topic does not have.
        """
        count = len(rows)
        placed = np.full(count, -1, dtype=np.int64)
        if wanted is not None:
            chosen = wanted.is_valid().to_numpy(zero_copy_only=False)
            numbers = wanted.fill_null(0).to_numpy().astype(np.int64)
            bad = np.flatnonzero(chosen & ((numbers < 0) | (numbers >= self._partitions)))
            if bad.size:
                raise SinkError(
                    f"row {rows[bad[0]]}: column partition is {numbers[bad[0]]}; topic"
                    f" {self._topic!r} has {partitions_text(self._partitions)}"
                )
            placed[chosen] = numbers[chosen]
        if keys is not None:
            keyed = keys.is_valid().to_numpy(zero_copy_only=False) & (placed < 0)
            if keyed.all():
                return self._by_key(keys)
            if keyed.any():
                placed[keyed] = self._by_key(keys.filter(pa.array(keyed)))
        open_rows = placed < 0
        if open_rows.any():
            placed[open_rows] = self._in_turn(sizes[open_rows])
        return placed

    def _by_key(self, keys: pa.BinaryArray) -> Ints:
        if is_compiled():
            return partitions_of(keys, self._partitions).astype(np.int64)
        positive = (murmur2_of_all(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64)
        return positive % self._partitions

    def _in_turn(self, sizes: Ints) -> Ints:
        filled = self._filled + np.cumsum(sizes)
        rounds = (filled - sizes) // self._batch_bytes
        placed = (self._sticky + rounds) % self._partitions
        self._filled = int(filled[-1])
        return placed
