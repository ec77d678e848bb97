"""Decoding of fetched record batches to Arrow: the hot path of reading.

Batches are gathered into groups (one arena each, so that small batches do not pay per batch).
`record_fields` finds their fields, and Arrow slices keys and values from the arena. Control batches
are skipped. `next_offset` moves past all decoded offsets, also past those without rows (control
batches, offsets that compaction removed), so that a reader knows where to go on. Knows nothing of
sockets and of Spark. A group holds GROUP_BYTES and one batch more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.core.errors import TidelogError
from tidelog.core.limits import MAX_DECOMPRESSED_BYTES, MIB
from tidelog.core.types import TopicPartition
from tidelog.records.batch import LOG_APPEND_TIME, BatchView, check, iter_batches
from tidelog.records.compression import decompress
from tidelog.spark.columns import COLUMNS, HEADER_TYPE, TIMESTAMP_TYPE, arrow_schema
from tidelog.spark.record_fields import (
    Ints,
    Pieces,
    RecordFields,
    read_fields,
    read_headers,
    walk_records,
)

#: Record bytes decoded together.
GROUP_BYTES: Final = 4 * MIB
#: Record bytes in one Arrow batch: Spark's pipe is fastest around 1 MB.
TARGET_BATCH_BYTES: Final = MIB

_US_PER_MS: Final = 1000


class CorruptBatchError(TidelogError):
    """Illegible fetched bytes; the message has the partition and the place."""


def never(_batch: BatchView) -> bool:
    """Return False: no batch is of an aborted transaction."""
    return False


class PartitionDecoder:
    """A decoder of one partition's fetches, in order, into Arrow batches of `[start, end)`."""

    def __init__(
        self, tp: TopicPartition, start: int, end: int, columns: Sequence[str] = COLUMNS
    ) -> None:
        self._tp = tp
        self._end = end
        self._columns = columns
        self._schema = arrow_schema(columns)
        #: All lower offsets are decoded: their rows were returned, or they have none.
        self.next_offset = start

    def decode(
        self, chunk: memoryview, is_aborted: Callable[[BatchView], bool] = never
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a chunk. Raises CorruptBatchError naming partition and offset.

        Batches that begin below `next_offset` give only their rows from there on. `is_aborted` is
        called with each batch in order, control batches too; a batch of which it holds gives none.
        """
        group: list[BatchView] = []
        payloads: list[memoryview] = []
        held = 0
        covered = self.next_offset
        try:
            for batch in iter_batches(chunk):
                check(batch)
                if batch.base_offset >= self._end:
                    break
                is_left_out = is_aborted(batch) or batch.is_control
                if batch.last_offset < covered:
                    continue
                covered = min(batch.last_offset + 1, self._end)
                if batch.record_count and not is_left_out:
                    group.append(batch)
                    payloads.append(_records_of(batch))
                    held += len(payloads[-1])
                if held >= GROUP_BYTES:
                    yield from self._rows(group, payloads, covered)
                    group, payloads, held = [], [], 0
            if group:
                yield from self._rows(group, payloads, covered)
        except TidelogError as error:
            raise CorruptBatchError(
                f"{self._tp}, at or after offset {self.next_offset}: {error}"
            ) from error
        self.next_offset = covered

    def _rows(
        self, group: list[BatchView], payloads: list[memoryview], covered: int
    ) -> Iterator[pa.RecordBatch]:
        arena = b"".join(payloads)
        raw = np.frombuffer(arena, dtype=np.uint8)
        starts, ends = _record_bounds(arena, group, payloads)
        fields = read_fields(raw, starts, ends)
        counts = [batch.record_count for batch in group]
        offsets = fields.offset_deltas + np.repeat(_of(group, "base_offset"), counts)
        limits = np.repeat(_of(group, "last_offset"), counts)
        if (np.diff(offsets) <= 0).any() or (offsets > limits).any():
            raise CorruptBatchError("the offsets of records do not rise to that of their batch")
        low = int(np.searchsorted(offsets, self.next_offset))
        high = int(np.searchsorted(offsets, self._end))
        rows = self._batch(arena, raw, group, fields, offsets)
        self.next_offset = covered
        yield from _in_portions(rows, low, high, starts)

    def _batch(
        self,
        arena: bytes,
        raw: npt.NDArray[np.uint8],
        group: list[BatchView],
        fields: RecordFields,
        offsets: Ints,
    ) -> pa.RecordBatch:
        wanted = frozenset(self._columns)
        found: dict[str, pa.Array] = {}
        if wanted & {"key", "value"}:
            cut = _cut(arena, fields.keys, fields.values, "key" in wanted, "value" in wanted)
            found["key"], found["value"] = cut
        if "topic" in wanted:
            found["topic"] = pa.repeat(pa.scalar(self._tp.topic), len(offsets))
        if "partition" in wanted:
            number = pa.scalar(self._tp.partition, pa.int32())
            found["partition"] = pa.repeat(number, len(offsets))
        found["offset"] = pa.array(offsets)
        if wanted & {"timestamp", "timestampType"}:
            timestamps, types = _times(group, fields)
            found["timestamp"] = timestamps.cast(TIMESTAMP_TYPE)
            found["timestampType"] = types
        if "headers" in wanted:
            found["headers"] = self._headers(arena, raw, fields)
        return pa.RecordBatch.from_arrays(
            [found[name] for name in self._columns], schema=self._schema
        )

    def _headers(self, arena: bytes, raw: npt.NDArray[np.uint8], fields: RecordFields) -> pa.Array:
        """Return lists of headers; null for a record without any, as in Spark's Kafka connector."""
        found = read_headers(raw, fields)
        keys, values = _cut(arena, found.keys, found.values)
        structs = pa.StructArray.from_arrays([_as_text(keys), values], fields=list(HEADER_TYPE))
        bounds = np.zeros(len(fields.header_counts) + 1, dtype=np.int32)
        np.cumsum(fields.header_counts, out=bounds[1:])
        return pa.ListArray.from_arrays(
            pa.array(bounds),
            structs,
            type=self._schema.field("headers").type,
            mask=pa.array(fields.header_counts == 0),
        )


def _records_of(batch: BatchView) -> memoryview:
    if not batch.compression:
        return batch.records
    return memoryview(decompress(batch.compression, batch.records, MAX_DECOMPRESSED_BYTES))


def _of(group: list[BatchView], name: str) -> Ints:
    return np.array([getattr(batch, name) for batch in group], dtype=np.int64)


def _record_bounds(
    arena: bytes, group: list[BatchView], payloads: list[memoryview]
) -> tuple[Ints, Ints]:
    """Return where each record of the group starts and ends in the arena."""
    bounds: list[int] = []
    firsts: list[int] = []
    origins: list[int] = []
    position = 0
    for batch, payload in zip(group, payloads, strict=True):
        if batch.record_count > len(payload):
            raise CorruptBatchError(f"{batch.record_count} records in {len(payload)} bytes")
        firsts.append(len(bounds))
        origins.append(position)
        end = position + len(payload)
        walk_records(arena, position, end, batch.record_count, bounds.append)
        position = end
    ends = np.array(bounds, dtype=np.int64)
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    starts[firsts] = origins
    return starts, ends


def _times(group: list[BatchView], fields: RecordFields) -> tuple[pa.Array, pa.Array]:
    """Return each record's microseconds since 1970, and its timestamp type."""
    counts = [batch.record_count for batch in group]
    append_time = np.repeat(_of(group, "timestamp_type") == LOG_APPEND_TIME, counts)
    timestamps = np.where(
        append_time,
        np.repeat(_of(group, "max_timestamp"), counts),
        np.repeat(_of(group, "base_timestamp"), counts) + fields.timestamp_deltas,
    )
    return pa.array(timestamps * _US_PER_MS), pa.array(append_time.astype(np.int32))


def _cut(
    arena: bytes, first: Pieces, second: Pieces, is_first: bool = True, is_second: bool = True
) -> tuple[pa.Array | None, pa.Array | None]:
    """Return two binary columns of the arena, where `second[i]` follows `first[i]`; None: unwanted.

    Arrow gets the arena as one binary array of four elements a row (first, gap, second, gap). It
    takes every fourth: one copy of the bytes, made by Arrow.
    """
    rows = len(first.starts)
    bounds = np.empty(4 * rows + 1, dtype=np.int32)
    bounds[0:-1:4] = first.starts
    bounds[1:-1:4] = first.ends
    bounds[2:-1:4] = second.starts
    bounds[3:-1:4] = second.ends
    bounds[-1] = len(arena)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(arena)]
    elements = pa.Array.from_buffers(pa.binary(), 4 * rows, buffers)
    picks = np.arange(0, 4 * rows, 4, dtype=np.int32)
    return (
        elements.take(pa.array(picks, mask=first.null)) if is_first else None,
        elements.take(pa.array(picks + 2, mask=second.null)) if is_second else None,
    )


def _as_text(keys: pa.Array) -> pa.Array:
    """Return header keys as text; bytes that are not UTF-8 are replaced, as Java's clients do."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.as_py().decode(errors="replace") for key in keys], pa.string())


def _in_portions(
    rows: pa.RecordBatch, low: int, high: int, starts: Ints
) -> Iterator[pa.RecordBatch]:
    """Yield `rows[low:high]` in slices of about TARGET_BATCH_BYTES of records, one row at least."""
    while low < high:
        limit = int(starts[low]) + TARGET_BATCH_BYTES
        stop = min(high, max(low + 1, int(np.searchsorted(starts, limit))))
        yield rows.slice(low, stop - low)
        low = stop
