"""Conversion of Arrow columns to the records of batches v2, for all rows of a chunk.

The compiled extension encodes the records if it exists (`record_encoding`). Without the extension,
numpy computes the numbers of each record (sizes, deltas) and writes them as varints into columns of
bytes. Arrow then joins the varints with keys and values, row by row, into one buffer that has
the records without gaps. Neither the extension nor numpy makes a Python object for a record. This
module knows the record format (KIP-98) and the sizes of batches, but not the leaders of partitions.
Timestamps are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.dataclass import dataclass
from tidelog.spark.record_encoding import RecordEncoder
from tidelog.spark.rows import is_compiled
from tidelog.spark.sink.batch_marks import HEADER
from tidelog.spark.sink.placement import Ints, binary_parts
from tidelog.spark.sink.row_columns import SinkError

Bytes = npt.NDArray[np.uint8]
#: Maximum size in bytes of the varint of an offset delta below 2^20.
_DELTA_BYTES: Final = 3
_MAX_BATCH_RECORDS: Final = 1 << 20
_EMPTY: Final = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class Payload:
    """The records of one batch, encoded from the rows `[start, end)` of a chunk."""

    start: int
    end: int
    data: memoryview
    #: Timestamp of the first record, and the largest timestamp.
    timestamps_ms: tuple[int, int]


def varints(values: Ints) -> tuple[Bytes, Ints]:
    """Return zigzag varints as rows of a byte matrix, and the number of valid bytes in each row."""
    left = ((values << 1) ^ (values >> 63)).view(np.uint64)
    largest = int(left.max(initial=0))
    width = max(1, -(-largest.bit_length() // 7))
    out = np.empty((len(values), width), dtype=np.uint8)
    sizes = np.ones(len(values), dtype=np.int64)
    for place in range(width):
        rest = left >> np.uint64(7)
        more = rest > 0
        out[:, place] = (left & np.uint64(0x7F)).astype(np.uint8)
        out[:, place] |= more.view(np.uint8) << 7
        sizes += more
        left = rest
    return out, sizes


def _varint_sizes(values: Ints) -> Ints:
    """Return how many bytes each field size takes as a varint; field sizes are -1 or more."""
    twice = np.where(values < 0, 1, values << 1)
    return 1 + (twice >= 1 << 7) + (twice >= 1 << 14) + (twice >= 1 << 21) + (twice >= 1 << 28)


def _joined_lines(parts: Sequence[tuple[Bytes, Ints]]) -> pa.BinaryArray:
    """Return one binary value for each row: the row's bytes from all `parts`, joined."""
    lines = np.concatenate([part for part, _ in parts], axis=1)
    kept = np.concatenate(
        [np.arange(part.shape[1]) < sizes[:, None] for part, sizes in parts], axis=1
    )
    sizes = np.sum([sizes for _, sizes in parts], axis=0)
    return binary_column(lines[kept], sizes)


def binary_column(data: Bytes, sizes: Ints) -> pa.BinaryArray:
    """Return a binary column whose values are stored without gaps in `data`."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def encoded_headers(
    headers: pa.ListArray | None, marks: Bytes | None, count: int, rows: Ints
) -> pa.BinaryArray | None:
    """Return the encoded headers of each record, which begin with the number of headers.

    Returns None if no record has headers. `marks` are the values of the header `tidelog.batch`,
    which becomes the last header of each record. `rows` are row numbers in the task, for error
    messages.
    """
    if headers is None and marks is None:
        return None
    parts: list[pa.Array] = []
    numbers = np.zeros(count, dtype=np.int64)
    if headers is not None:
        own, numbers = _own_headers(headers, rows)
        parts.append(own)
    if marks is not None:
        numbers = numbers + 1
        key = HEADER.encode()
        start = bytes([len(key) << 1]) + key + _varint(marks.shape[1])
        lines = np.empty((count, len(start) + marks.shape[1]), dtype=np.uint8)
        lines[:, : len(start)] = np.frombuffer(start, dtype=np.uint8)
        lines[:, len(start) :] = marks
        parts.append(binary_column(lines.reshape(-1), np.full(count, lines.shape[1])))
    how_many = _joined_lines([varints(numbers)])
    return pc.binary_join_element_wise(how_many, *parts, _EMPTY)


def _own_headers(headers: pa.ListArray, rows: Ints) -> tuple[pa.BinaryArray, Ints]:
    """Return the encoded headers of each row, and the number of headers, which is not encoded."""
    # `take` copies the header lists to a new array, whose offsets begin at 0 and skip the entries
    # of null lists.
    compact = headers.take(pa.array(np.arange(len(headers), dtype=np.int64)))
    lists = np.frombuffer(compact.buffers()[1], dtype=np.int32)[
        compact.offset : compact.offset + len(compact) + 1
    ].astype(np.int64)
    entries = compact.flatten()
    keys, values = entries.flatten()[:2]
    if keys.null_count:
        place = int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0])
        row = rows[int(np.searchsorted(lists, place, side="right")) - 1]
        raise SinkError(f"row {row}: a header has no key; header keys must not be null")
    if not len(keys):
        return binary_column(np.empty(0, np.uint8), np.zeros(len(rows), np.int64)), np.diff(lists)
    key_bytes, value_bytes = pc.cast(keys, pa.binary()), pc.cast(values, pa.binary())
    joined = pc.binary_join_element_wise(
        _joined_lines([varints(_sizes(key_bytes))]),
        key_bytes,
        _joined_lines([varints(_sizes(value_bytes))]),
        value_bytes,
        _EMPTY,
        null_handling="replace",
        null_replacement="",
    )
    ends, raw = binary_parts(joined)
    at = ends[lists]
    return binary_column(raw[at[0] : at[-1]], np.diff(at)), np.diff(lists)


def _sizes(column: pa.BinaryArray) -> Ints:
    """Return the size of each value, -1 for null."""
    sizes = pc.binary_length(column).fill_null(-1)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), dtype=np.int64)


def _varint(value: int) -> bytes:
    lines, sizes = varints(np.array([value], dtype=np.int64))
    return lines[0, : sizes[0]].tobytes()


class ChunkEncoder:
    """An encoder of the records of one chunk, whose rows may be in any order before `encode`."""

    def __init__(
        self,
        keys: pa.BinaryArray | None,
        values: pa.BinaryArray,
        headers: pa.BinaryArray | None,
        timestamps_ms: Ints | int,
    ) -> None:
        self._keys = keys
        self._values = values
        self._headers = headers
        self._timestamps = timestamps_ms
        self._compiled: RecordEncoder | None = None
        self._picks: Ints | None = None
        if is_compiled():
            self._compiled = RecordEncoder(keys, values, headers, timestamps_ms)
        count = len(values)
        self._key_sizes = np.full(count, -1, np.int64) if keys is None else _sizes(keys)
        self._value_sizes = _sizes(values)
        self._header_sizes: Ints | int = 1 if headers is None else _sizes(headers)
        #: `sizes` has an upper bound of each record's size in a batch, at most a few bytes too
        #: high.
        time_bytes = 1 if isinstance(timestamps_ms, int) else 10
        body = self._bodies() + time_bytes + _DELTA_BYTES
        self.sizes = body + _varint_sizes(body)

    def _bodies(self) -> Ints:
        """Return the sizes of all records without their deltas and the size field itself."""
        keys, values = self._key_sizes, self._value_sizes
        return (
            1  # attributes
            + _varint_sizes(keys)
            + np.maximum(keys, 0)
            + _varint_sizes(values)
            + np.maximum(values, 0)
            + self._header_sizes
        )

    def reorder(self, order: Ints) -> None:
        """Put the rows into the order of the row numbers `order`; a second call is not allowed."""
        self.sizes = self.sizes[order]
        if self._compiled is not None:
            self._picks = order
            return
        indices = pa.array(order)
        self._values = self._values.take(indices)
        if self._keys is not None:
            self._keys = self._keys.take(indices)
        if self._headers is not None:
            self._headers = self._headers.take(indices)
        if not isinstance(self._timestamps, int):
            self._timestamps = self._timestamps[order]
        if not isinstance(self._header_sizes, int):
            self._header_sizes = self._header_sizes[order]
        self._key_sizes = self._key_sizes[order]
        self._value_sizes = self._value_sizes[order]

    def batches_of(self, start: int, end: int, batch_bytes: int) -> list[tuple[int, int]]:
        """Split the rows `[start, end)` into batches of at most `batch_bytes`, or of one row."""
        filled = np.cumsum(self.sizes[start:end])
        cuts: list[tuple[int, int]] = []
        at = 0
        while at < end - start:
            before = int(filled[at - 1]) if at else 0
            to = int(np.searchsorted(filled, before + batch_bytes, side="right"))
            to = min(max(to, at + 1), at + _MAX_BATCH_RECORDS)
            cuts.append((start + at, start + to))
            at = to
        return cuts

    def encode(self, batches: Sequence[tuple[int, int]]) -> Iterator[Payload]:
        """Yield the records of each batch; together the batches have all rows, in order."""
        if self._compiled is None:
            yield from self._encode_together(batches)
            return
        for start, end in batches:
            records = self._compiled.encode(start, end, self._picks)
            yield Payload(start, end, memoryview(records.payload), records.timestamps_ms)

    def _encode_together(self, batches: Sequence[tuple[int, int]]) -> list[Payload]:
        starts = np.array([start for start, _ in batches], dtype=np.int64)
        counts = np.array([end - start for start, end in batches], dtype=np.int64)
        offset_deltas = np.arange(len(self._values), dtype=np.int64) - np.repeat(starts, counts)
        offsets, offset_sizes = varints(offset_deltas)
        deltas, delta_sizes, bounds = self._timestamp_deltas(starts, counts)
        bodies = self._bodies() + delta_sizes + offset_sizes
        attributes = np.zeros((len(bodies), 1), np.uint8), np.ones(len(bodies), np.int64)
        head = [varints(bodies), attributes, (deltas, delta_sizes), (offsets, offset_sizes)]
        value_sizes = varints(self._value_sizes)
        none = pa.scalar(b"\0", pa.binary())
        tail = none if self._headers is None else self._headers
        if self._keys is None:
            null_key = np.full((len(bodies), 1), 1, np.uint8), np.ones(len(bodies), np.int64)
            columns = [_joined_lines([*head, null_key, value_sizes]), self._values, tail]
        else:
            columns = [
                _joined_lines([*head, varints(self._key_sizes)]),
                self._keys,
                _joined_lines([value_sizes]),
                self._values,
                tail,
            ]
        joined = pc.binary_join_element_wise(
            *columns, _EMPTY, null_handling="replace", null_replacement=""
        )
        ends, raw = binary_parts(joined)
        view = memoryview(raw.data)
        return [
            Payload(start, end, view[ends[start] : ends[end]], bound)
            for (start, end), bound in zip(batches, bounds, strict=True)
        ]

    def _timestamp_deltas(
        self, starts: Ints, counts: Ints
    ) -> tuple[Bytes, Ints, list[tuple[int, int]]]:
        times, rows = self._timestamps, int(counts.sum())
        if isinstance(times, int):
            same = np.zeros((rows, 1), np.uint8), np.ones(rows, np.int64)
            return *same, [(times, times)] * len(starts)
        first = times[starts]
        deltas, sizes = varints(times - np.repeat(first, counts))
        largest = np.maximum.reduceat(times, starts)
        return deltas, sizes, list(zip(first.tolist(), largest.tolist(), strict=True))
