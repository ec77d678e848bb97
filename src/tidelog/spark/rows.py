"""The rows of record batches as Arrow columns, decoded by the compiled extension or by numpy.

`_rows.c` decodes in one pass, straight from the fetched bytes, and copies keys and values once.
`_rows.c` accepts legible records only: for other records `numpy_rows` raises the error, so that
both have the same message for the same damage. Without the extension numpy decodes everything, and
a read has about a third of the speed. Columns that a caller does not want are not made. This module
knows record format v2 (KIP-98), but neither sockets nor Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelog.spark.columns import TIMESTAMP_TYPE
from tidelog.spark.numpy_rows import decode_with_numpy
from tidelog.spark.row_columns import HEADERS, RowBatch, Rows, header_structs

if TYPE_CHECKING:
    compiled: Any
else:
    try:
        from tidelog.spark import _rows as compiled
    except ImportError:
        compiled = None

#: Version of arguments and results that this module requires of the extension.
_VERSION: Final = 2
#: The columns to decode, with their bits in `_rows.c`. Offsets are always decoded.
_BITS: Final = {"key": 1, "value": 2, "timestamp": 4, "timestampType": 8, "headers": 16}


def is_compiled() -> bool:
    """Return whether the extension exists and has the version that this module requires."""
    return compiled is not None and getattr(compiled, "VERSION", 0) == _VERSION


def decode_rows(batches: Sequence[RowBatch], first: int, end: int, wanted: frozenset[str]) -> Rows:
    """Return the rows of offsets `[first, end)`; `wanted` has the names of columns.

    Raises CorruptRecordsError if records contradict their batch.
    """
    if is_compiled():
        found = decode_compiled(compiled, batches, first, end, wanted)
        if found is not None:
            return found
    return decode_with_numpy(batches, first, end, wanted)


def decode_compiled(
    extension: Any, batches: Sequence[RowBatch], first: int, end: int, wanted: frozenset[str]
) -> Rows | None:
    """Return the rows as `decode_rows` does; None for bytes that the extension rejects."""
    bits = sum(bit for name, bit in _BITS.items() if name in wanted)
    found = extension.decode(list(batches), first, end, bits)
    if found is None:
        return None
    count, key, value, offsets, timestamps, types, headers = found
    columns: dict[str, pa.Array] = {
        "offset": _numbers(pa.int64(), count, offsets),
        "key": _binary(count, key),
        "value": _binary(count, value),
        "timestamp": _numbers(TIMESTAMP_TYPE, count, timestamps),
        "timestampType": _numbers(pa.int32(), count, types),
        "headers": _headers(count, headers),
    }
    return Rows(count, {name: column for name, column in columns.items() if name in wanted})


def _numbers(kind: pa.DataType, count: int, numbers: bytearray | None) -> pa.Array | None:
    if numbers is None:
        return None
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(numbers)], 0)


def _binary(count: int, found: tuple[Any, ...] | None) -> pa.Array | None:
    if found is None:
        return None
    offsets, data, used, validity, nulls = found
    buffers = [
        None if validity is None else pa.py_buffer(validity),
        pa.py_buffer(offsets),
        pa.py_buffer(data).slice(0, used),
    ]
    return pa.Array.from_buffers(pa.binary(), count, buffers, nulls)


def _headers(count: int, found: tuple[Any, ...] | None) -> pa.Array | None:
    if found is None:
        return None
    lists, validity, nulls, headers, keys, values = found
    elements = header_structs(_binary(headers, keys), _binary(headers, values))
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(lists)]
    return pa.Array.from_buffers(HEADERS, count, buffers, nulls, children=[elements])
