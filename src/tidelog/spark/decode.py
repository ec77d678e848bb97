"""Decoding of fetched record batches to Arrow: the hot path of reading.

Batches are gathered into groups of about a megabyte, with one Arrow batch for each group, because
each Arrow batch has a fixed cost. `rows` decodes a group. Control batches give no rows, and neither
do batches that the caller marks as aborted. `next_offset` moves past all decoded offsets, also past
offsets without rows (control batches, aborted records, compacted records), so that a reader knows
where to continue. This module uses neither sockets nor Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.core.errors import TidelogError
from tidelog.core.limits import MAX_DECOMPRESSED_BYTES, MIB
from tidelog.core.ports import Buffer
from tidelog.core.types import TopicPartition
from tidelog.records.batch import LOG_APPEND_TIME, BatchView, check, iter_batches
from tidelog.records.compression import decompress
from tidelog.spark.columns import COLUMNS, arrow_schema
from tidelog.spark.fetch_sizes import SeenBatch
from tidelog.spark.row_columns import RowBatch, Rows
from tidelog.spark.rows import decode_rows

#: Bytes of records that are decoded together into one Arrow batch, because Spark's pipe is fastest
#: around 1 MB. A larger record batch is decoded alone and returned in slices.
GROUP_BYTES: Final = MIB
#: Estimated bytes of a row without its key and value, from which the sizes of slices are computed.
_ROW_BYTES: Final = 32


class CorruptBatchError(TidelogError):
    """The error for fetched bytes that are no valid record batches; the message has partition and
    offset.
    """


def never(_batch: BatchView) -> bool:
    """Return False: a test of batches for reads in which no batch counts as aborted."""
    return False


class PartitionDecoder:
    """A decoder of one partition's record batches, which come in offset order.

    The decoder returns the rows with offsets in `[start, end)`.
    """

    def __init__(
        self, tp: TopicPartition, start: int, end: int, columns: Sequence[str] = COLUMNS
    ) -> None:
        self._tp = tp
        self._end = end
        self._columns = columns
        self._wanted = frozenset(columns)
        self._schema = arrow_schema(columns)
        self._constants = _Constants(tp)
        #: Next offset to decode: the rows of all lower offsets were returned, or these offsets have
        #: no rows.
        self.next_offset = start
        #: The last batch with offsets of the range, after each call of `decode`.
        self.last_batch: SeenBatch | None = None

    def decode(
        self, chunk: memoryview, is_aborted: Callable[[BatchView], bool] = never
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of fetched bytes. Raises CorruptBatchError with partition and offset.

        Batches that begin below `next_offset` give only their rows from that offset on.
        `is_aborted` is called with each batch in order, with control batches too; a batch for which
        it returns True gives no rows.
        """
        group: list[RowBatch] = []
        held = 0
        covered = self.next_offset
        last: BatchView | None = None
        try:
            for batch in iter_batches(chunk):
                check(batch)
                if batch.base_offset >= self._end:
                    covered = self._end  # compaction removed the last records of the range
                    break
                last = batch
                is_left_out = is_aborted(batch) or batch.is_control
                if batch.last_offset < covered:
                    continue
                if batch.record_count and not is_left_out:
                    row_batch = _row_batch(batch)
                    size = len(row_batch.records)
                    if group and held + size > GROUP_BYTES:
                        yield from self._arrow_batches(group, held, covered)
                        group, held = [], 0
                    group.append(row_batch)
                    held += size
                covered = min(batch.last_offset + 1, self._end)
            if group:
                yield from self._arrow_batches(group, held, covered)
        except TidelogError as error:
            raise CorruptBatchError(
                f"{self._tp}, at or after offset {self.next_offset}: {error}"
            ) from error
        self.next_offset = covered
        if last is not None:
            self.last_batch = SeenBatch(last.base_offset, last.last_offset, last.size_bytes)

    def _arrow_batches(
        self, group: list[RowBatch], size_bytes: int, covered: int
    ) -> Iterator[pa.RecordBatch]:
        rows = decode_rows(group, self.next_offset, self._end, self._wanted)
        self.next_offset = covered
        if not rows.count:
            return
        found = rows.columns | self._constants.of(rows.count, self._wanted)
        batch = pa.RecordBatch.from_arrays(
            [found[name] for name in self._columns], schema=self._schema
        )
        if size_bytes <= 2 * GROUP_BYTES:
            yield batch
        else:
            yield from _slices(batch, _ends(rows))


class _Constants:
    """Columns with one value for all rows of a partition; each Arrow batch gets slices of them."""

    def __init__(self, tp: TopicPartition) -> None:
        self._values = {
            "topic": pa.scalar(tp.topic),
            "partition": pa.scalar(tp.partition, pa.int32()),
        }
        self._made: dict[str, pa.Array] = {}

    def of(self, count: int, wanted: frozenset[str]) -> dict[str, pa.Array]:
        """Return the columns that are in `wanted`, each with `count` rows."""
        found: dict[str, pa.Array] = {}
        for name, value in self._values.items():
            if name in wanted:
                made = self._made.get(name)
                if made is None or len(made) < count:
                    made = self._made[name] = pa.repeat(value, count + count // 4)
                found[name] = made.slice(0, count)
        return found


def _row_batch(batch: BatchView) -> RowBatch:
    return RowBatch(
        _records_of(batch),
        batch.base_offset,
        batch.last_offset,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.record_count,
        batch.timestamp_type == LOG_APPEND_TIME,
    )


def _records_of(batch: BatchView) -> Buffer:
    if not batch.compression:
        return batch.records
    return decompress(batch.compression, batch.records, MAX_DECOMPRESSED_BYTES)


def _ends(rows: Rows) -> npt.NDArray[np.int64]:
    """Return the sum of the row sizes in bytes up to the end of each row."""
    ends = np.arange(1, rows.count + 1, dtype=np.int64) * _ROW_BYTES
    for name in ("key", "value"):
        if name in rows.columns:
            ends += np.cumsum(_lengths(rows.columns[name]))
    return ends


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return np.diff(offsets[column.offset : column.offset + len(column) + 1]).astype(np.int64)


def _slices(batch: pa.RecordBatch, ends: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Yield slices of about GROUP_BYTES, each with at least one row."""
    low, before = 0, 0
    while low < len(ends):
        stop = max(low + 1, int(np.searchsorted(ends, before + GROUP_BYTES)))
        yield batch.slice(low, stop - low)
        before = int(ends[stop - 1])
        low = stop
