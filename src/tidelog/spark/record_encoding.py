"""Encoding of Arrow columns to records of batches v2, and hashing of keys, by compiled code.

This module is the reverse of `rows`: one pass over the columns, one copy of keys and values,
without the GIL. The caller may pick rows in any order, so it need not sort its columns by partition
first. The caller must check that the extension exists (`rows.is_compiled`); the sink can also
encode with numpy. Headers come encoded: one value for each record, which begins with the number of
headers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.core.dataclass import dataclass
from tidelog.spark import rows

Ints = npt.NDArray[np.int64]


class EncodedRecords(NamedTuple):
    """The records of one batch, without its header."""

    payload: bytearray
    #: Timestamp of the first record, and the largest timestamp.
    timestamps_ms: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RecordEncoder:
    """An encoder of rows to records.

    `keys` and `values` are binary Arrow arrays; `keys` is None if every key is null.
    """

    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    #: The encoded headers of each record; None or null means no headers.
    headers: pa.BinaryArray | None
    #: One timestamp for each row, or one for all rows.
    timestamps_ms: Ints | int

    def encode(self, start: int, end: int, picks: Ints | None = None) -> EncodedRecords:
        """Return the records of the rows `[start, end)`, or of the rows `picks[start:end]`.

        Raises ValueError for row numbers outside the columns, and for more than 2 GiB of records.
        """
        is_constant = isinstance(self.timestamps_ms, int)
        payload, first, largest = rows.compiled.encode(
            _column(self.keys),
            _column(self.values),
            _column(self.headers),
            None if is_constant else np.ascontiguousarray(self.timestamps_ms, dtype=np.int64),
            self.timestamps_ms if is_constant else 0,
            None if picks is None else np.ascontiguousarray(picks, dtype=np.int64),
            len(self.values),
            start,
            end,
        )
        return EncodedRecords(payload, (first, largest))


def partitions_of(keys: pa.BinaryArray, partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key by Kafka's default partitioner; -1 for a null key."""
    found = rows.compiled.partitions(_column(keys), len(keys), partitions)
    return np.frombuffer(found, dtype=np.int32)


def _column(column: pa.BinaryArray | None) -> tuple[Any, ...] | None:
    return None if column is None else (*column.buffers(), column.offset)
