"""The rows of record batches as Arrow columns, by numpy alone: the plain counterpart of `_rows.c`.

The records of all batches are joined in one buffer, the arena. `record_fields` finds the fields in
the arena, and Arrow copies keys and values from the arena. If `_rows.c` is compiled, this module
only raises the errors for damaged bytes; otherwise it decodes all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.spark.columns import TIMESTAMP_TYPE
from tidelog.spark.record_fields import (
    CorruptRecordsError,
    Ints,
    Pieces,
    RecordFields,
    read_fields,
    read_headers,
    walk_records,
)
from tidelog.spark.row_columns import HEADERS, RowBatch, Rows, header_structs

_US_PER_MS = 1000


def decode_with_numpy(
    batches: Sequence[RowBatch], first: int, end: int, wanted: frozenset[str]
) -> Rows:
    """Return the rows as `rows.decode_rows` does, with the same errors."""
    arena = b"".join(batch.records for batch in batches)
    raw = np.frombuffer(arena, dtype=np.uint8)
    starts, ends = _record_bounds(arena, batches)
    fields = read_fields(raw, starts, ends)
    offsets = fields.offset_deltas + _of(batches, "base_offset")
    if (np.diff(offsets) <= 0).any() or (offsets > _of(batches, "last_offset")).any():
        raise CorruptRecordsError("the offsets of records do not rise to that of their batch")
    columns: dict[str, pa.Array] = {}
    if "offset" in wanted:
        columns["offset"] = pa.array(offsets)
    if "key" in wanted:
        columns["key"] = _cut(arena, fields.keys)
    if "value" in wanted:
        columns["value"] = _cut(arena, fields.values)
    append_time = _of(batches, "is_append_time") != 0
    if "timestamp" in wanted:
        timestamps = np.where(
            append_time,
            _of(batches, "max_timestamp_ms"),
            _of(batches, "base_timestamp_ms") + fields.timestamp_deltas,
        )
        columns["timestamp"] = pa.array(timestamps * _US_PER_MS).cast(TIMESTAMP_TYPE)
    if "timestampType" in wanted:
        columns["timestampType"] = pa.array(append_time.astype(np.int32))
    if "headers" in wanted:
        columns["headers"] = _headers(arena, raw, fields)
    low = int(np.searchsorted(offsets, first))
    high = max(low, int(np.searchsorted(offsets, end)))
    return Rows(high - low, {name: each.slice(low, high - low) for name, each in columns.items()})


def _of(batches: Sequence[RowBatch], name: str) -> Ints:
    """Return one value for each record: the field `name` of the record's batch."""
    values = np.array([getattr(batch, name) for batch in batches], dtype=np.int64)
    return np.repeat(values, [batch.record_count for batch in batches])


def _record_bounds(arena: bytes, batches: Sequence[RowBatch]) -> tuple[Ints, Ints]:
    """Return where each record starts and ends in the buffer with all records."""
    bounds: list[int] = []
    firsts: list[int] = []
    origins: list[int] = []
    position = 0
    for batch in batches:
        if batch.record_count > len(batch.records):
            raise CorruptRecordsError(f"{batch.record_count} records in {len(batch.records)} bytes")
        if batch.record_count:
            firsts.append(len(bounds))
            origins.append(position)
        end = position + len(batch.records)
        walk_records(arena, position, end, batch.record_count, bounds.append)
        position = end
    ends = np.array(bounds, dtype=np.int64)
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    starts[firsts] = origins
    return starts, ends


def _cut(arena: bytes, pieces: Pieces) -> pa.Array:
    """Return a binary column of pieces of the arena, the buffer with all records.

    Arrow gets the buffer with all records as one binary array with two elements for each row: the
    bytes of the row, and the gap after these bytes. Arrow then takes only the elements with the
    bytes of rows, so these bytes are copied once.
    """
    rows = len(pieces.starts)
    bounds = np.empty(2 * rows + 1, dtype=np.int32)
    bounds[0:-1:2] = pieces.starts
    bounds[1:-1:2] = pieces.ends
    bounds[-1] = len(arena)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(arena)]
    elements = pa.Array.from_buffers(pa.binary(), 2 * rows, buffers)
    return elements.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32), mask=pieces.null))


def _headers(arena: bytes, raw: npt.NDArray[np.uint8], fields: RecordFields) -> pa.Array:
    """Return lists of headers; null for a record without headers, as in Spark's Kafka connector."""
    found = read_headers(raw, fields)
    structs = header_structs(_cut(arena, found.keys), _cut(arena, found.values))
    bounds = np.zeros(len(fields.header_counts) + 1, dtype=np.int32)
    np.cumsum(fields.header_counts, out=bounds[1:])
    return pa.ListArray.from_arrays(
        pa.array(bounds), structs, type=HEADERS, mask=pa.array(fields.header_counts == 0)
    )
