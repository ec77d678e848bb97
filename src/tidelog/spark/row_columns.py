"""The input and the result of decoding records to rows: batches, and Arrow columns.

The compiled decoder (`rows`) and the decoder with numpy (`numpy_rows`) share the types of this
module.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from tidelog.core.dataclass import dataclass
from tidelog.core.ports import Buffer
from tidelog.spark.columns import HEADER_TYPE

HEADERS: Final = pa.list_(pa.field("element", HEADER_TYPE))


class RowBatch(NamedTuple):
    """A record batch to decode: its records without compression, and fields of its header."""

    records: Buffer
    base_offset: int
    last_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    is_append_time: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """Decoded records as columns: the number of rows, and the columns that the query wants."""

    count: int
    columns: dict[str, pa.Array]


def header_structs(keys: pa.Array, values: pa.Array) -> pa.StructArray:
    """Return headers as structs of a text key and a bytes value."""
    return pa.StructArray.from_arrays([_as_text(keys), values], fields=list(HEADER_TYPE))


def _as_text(keys: pa.Array) -> pa.Array:
    """Return header keys as text; invalid UTF-8 is replaced, as in Java's clients."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.as_py().decode(errors="replace") for key in keys], pa.string())
