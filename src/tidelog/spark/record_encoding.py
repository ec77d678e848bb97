"""Arrow columns to the records of a batch v2, and keys to partitions, by the compiled extension.

The reverse of `rows`: one pass over the columns, one copy of keys and values, no GIL. Rows may be
picked in any order, so that a caller need not sort its columns by partition first. Asks the caller
to look whether the extension exists (`rows.is_compiled`); the sink has the same in numpy. Headers
come encoded, one value for each record with the number of headers in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.spark import rows

Ints = npt.NDArray[np.int64]


class EncodedRecords(NamedTuple):
    """The records of one batch, without its header."""

    payload: bytearray
    #: Of the first record, and the largest.
    timestamps_ms: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RecordEncoder:
    """The columns to encode; those of Arrow are binary. None: null in each row."""

    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    #: The encoded headers of each record; None or null: no headers.
    headers: pa.BinaryArray | None
    #: One for each row, or one for all.
    timestamps_ms: Ints | int

    def encode(self, start: int, end: int, picks: Ints | None = None) -> EncodedRecords:
        """Return the records of the rows `[start, end)`, or of the rows `picks[start:end]`.

        Raises ValueError for rows that are not in the columns and for more than 2 GiB.
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
    """Return the partition of each key as Kafka's default partitioner chooses it; -1 for null."""
    found = rows.compiled.partitions(_column(keys), len(keys), partitions)
    return np.frombuffer(found, dtype=np.int32)


def _column(column: pa.BinaryArray | None) -> tuple[Any, ...] | None:
    return None if column is None else (*column.buffers(), column.offset)
