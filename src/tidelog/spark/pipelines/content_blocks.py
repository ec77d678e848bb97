"""The tasks of a proof that compares a table's rows with the log's records by checksums.

A task reads files into a block of checksums, sorted by partition and offset. The task then reads
the log's records at the block's offsets. Only checksums are held, so the size of the records does
not matter. The module uses Arrow and a client, not Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from tidelog.client.fetching import EARLIEST
from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MIB
from tidelog.core.types import TopicId, TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.columns import arrow_schema
from tidelog.spark.lake.state import LakeFile
from tidelog.spark.lake.stores import LakeStore, reason_of
from tidelog.spark.options import ReadOptions
from tidelog.spark.pipelines.continuity import Gap, LogGaps
from tidelog.spark.pipelines.counting import OffsetColumns, offsets_of, roots_of
from tidelog.spark.pipelines.new_offsets import is_compacted
from tidelog.spark.planning import OffsetRange
from tidelog.spark.reading import read_range_with

#: Approximate bytes of a file's rows that are decoded at once.
_DECODED_BYTES: Final = 16 * MIB
_MOST_DECODED_ROWS: Final = 65_536
#: If more consecutive offsets than this have no row, the log is not read at these offsets.
_SKIPPED_OFFSETS: Final = 10_000
#: Maximum number of ranges with faults that a block names; further ranges are only counted.
_NAMED_RANGES: Final = 100
_NO_VALUE: Final = np.iinfo(np.int64).min

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of a partition's log: its start and its last stable offset."""

    topic_id: TopicId
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BlockJob:
    """The work of one Spark task: files of a table, to be compared with the log."""

    store: LakeStore
    files: tuple[LakeFile, ...]
    columns: OffsetColumns
    topic: str
    #: By partition of the topic: the bounds of its log.
    logs: Mapping[int, LogBounds]
    #: Options of the log's reader, whose columns are `offset` and the compared columns.
    options: ReadOptions
    #: Number of rows of a block.
    block_rows: int

    @property
    def compared(self) -> tuple[str, ...]:
        """The names of the columns that are compared with the log; `offset` is not among them."""
        return tuple(name for name in self.options.columns if name != "offset")


@dataclass(frozen=True, slots=True)
class _Rows:
    """Checksums of rows, one array for each compared column, and the number of the file of each
    row.
    """

    partitions: Ints
    offsets: Ints
    files: Ints
    sums: tuple[Ints, ...]
    #: Bit mask of the compared columns that a row's file has; an older file may lack some.
    columns: Ints

    def take(self, chosen: Any) -> _Rows:
        """Return the rows that a slice, a mask or row numbers choose."""
        return _Rows(
            self.partitions[chosen],
            self.offsets[chosen],
            self.files[chosen],
            tuple(column[chosen] for column in self.sums),
            self.columns[chosen],
        )


def compare_files(job: BlockJob) -> Iterator[dict[str, Any]]:
    """Yield counts of each block and partition, faults of ranges, and files that cannot be read.

    Raises KafkaError, RecreatedTopicError, CorruptBatchError.
    """
    options = job.options
    held: list[_Rows] = []
    rows = 0
    with BlockingClient(options.bootstrap, options.client_id, options.timeout_ms) as client:
        for number, file in enumerate(job.files):
            try:
                for batch in _file_rows(job, number, file):
                    held.append(batch)
                    rows += len(batch.offsets)
                    if rows >= job.block_rows:
                        yield from _compared(client, job, held)
                        held, rows = [], 0
            except FileNotFoundError:
                yield {"path": file.path, "reason": "is missing"}
            except KeyError as error:
                yield {"path": file.path, "reason": f"has no column {error}"}
            except (pa.ArrowException, OSError) as error:
                yield {"path": file.path, "reason": f"cannot be read: {reason_of(error)}"}
        if rows:
            yield from _compared(client, job, held)


def _file_rows(job: BlockJob, number: int, file: LakeFile) -> Iterator[_Rows]:
    """Yield the checksums of a file's rows. Raises KeyError, ArrowException, OSError."""
    with (
        job.store.open().open_input_file(file.path) as source,
        parquet.ParquetFile(
            source, buffer_size=MIB, pre_buffer=False, coerce_int96_timestamp_unit="us"
        ) as opened,
    ):
        footer = opened.metadata
        groups = (footer.row_group(place) for place in range(footer.num_row_groups))
        widest = max(
            (group.total_byte_size / max(1, group.num_rows) for group in groups), default=1
        )
        held = [name for name in job.compared if name in opened.schema_arrow.names]
        bits = sum(1 << job.compared.index(name) for name in held)
        names = {*roots_of(opened.schema_arrow, job.columns, file.values), *held}
        for batch in opened.iter_batches(
            batch_size=max(
                1, min(_MOST_DECODED_ROWS, job.block_rows, int(_DECODED_BYTES / max(1, widest)))
            ),
            columns=sorted(names),
        ):
            rows = offsets_of(batch, job.columns, file.values, held)
            offsets = rows.column(1).to_numpy()
            sums = dict(zip(held, _sums(rows, held), strict=True))
            yield _Rows(
                rows.column(0).to_numpy().astype(np.int64),
                offsets,
                np.full_like(offsets, number),
                tuple(sums.get(name, np.zeros_like(offsets)) for name in job.compared),
                np.full_like(offsets, bits),
            )


def _sums(rows: pa.RecordBatch, columns: Sequence[str]) -> tuple[Ints, ...]:
    """Return a checksum of each value; equal values have equal checksums within a process."""
    source = arrow_schema(columns)
    return tuple(
        _column_sums(rows.column(name).cast(source.field(name).type, safe=False))
        for name in columns
    )


def _column_sums(column: pa.Array) -> Ints:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        numbers = pc.fill_null(column.cast(pa.int64()), _NO_VALUE)
        return np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64)
    values = column.to_pylist()
    if pa.types.is_list(kind):
        values = [
            None if each is None else tuple((item["key"], item["value"]) for item in each)
            for each in values
        ]
    return np.fromiter(map(hash, values), np.int64, len(values))


def _compared(
    client: BlockingClient, job: BlockJob, held: Sequence[_Rows]
) -> Iterator[dict[str, Any]]:
    """Yield the counts and the faults of a block."""
    block = _Rows(
        np.concatenate([each.partitions for each in held]),
        np.concatenate([each.offsets for each in held]),
        np.concatenate([each.files for each in held]),
        tuple(
            np.concatenate(columns) for columns in zip(*(each.sums for each in held), strict=True)
        ),
        np.concatenate([each.columns for each in held]),
    )
    block = block.take(np.lexsort((block.offsets, block.partitions)))
    for partition in np.unique(block.partitions):
        first, end = np.searchsorted(block.partitions, [partition, partition + 1])
        yield from _PartitionComparison(client, job, int(partition)).run(
            block.take(slice(first, end))
        )


class _PartitionComparison:
    """The comparison of a partition's rows in a block."""

    def __init__(self, client: BlockingClient, job: BlockJob, partition: int) -> None:
        self._client = client
        self._job = job
        self._tp = TopicPartition(job.topic, partition)
        self._log = job.logs.get(partition)
        self._counts: Counter[str] = Counter()
        self._faults: list[dict[str, Any]] = []

    def run(self, rows: _Rows) -> Iterator[dict[str, Any]]:
        """Compare rows, and yield one row of counts and a row for each named range of faults."""
        first, last = int(rows.offsets[0]), int(rows.offsets[-1])
        counts = self._counts
        counts["rows"] = len(rows.offsets)
        start, end = (0, 0) if self._log is None else (self._log.start, self._log.end)
        low, high = np.searchsorted(rows.offsets, [start, max(start, end)])
        counts["unreached"] += int(low)
        self._note("beyond", rows.take(slice(int(high), None)))
        for window in _windows(rows.take(slice(int(low), int(high)))):
            self._window(window)
        yield {"partition": self._tp.partition, "start": first, "end": last + 1, **counts}
        yield from self._faults

    def _window(self, rows: _Rows) -> None:
        """Compare rows whose offsets are close to each other."""
        assert self._log is not None
        wanted = OffsetRange(
            self._tp, int(rows.offsets[0]), int(rows.offsets[-1]) + 1, self._log.topic_id
        )
        place = 0
        for batch in read_range_with(self._client, self._job.options, wanted):
            offsets = batch.column("offset").to_numpy()
            if not len(offsets):
                continue
            reached = int(np.searchsorted(rows.offsets, offsets[-1], "right"))
            self._batch(rows.take(slice(place, reached)), offsets, batch)
            place = reached
        self._without_record(rows.take(slice(place, None)))

    def _batch(self, rows: _Rows, offsets: Ints, batch: pa.RecordBatch) -> None:
        """Compare rows with records that reach at least to the last row's offset."""
        found = np.searchsorted(offsets, rows.offsets)
        has_record = offsets[found] == rows.offsets
        self._without_record(rows.take(~has_record))
        rows, found = rows.take(has_record), found[has_record]
        if not len(found):
            return
        self._counts["compared"] += len(found)
        sums = _sums(batch, self._job.compared)
        differs = np.zeros(len(found), np.int64)
        for bit, (ours, theirs) in enumerate(zip(rows.sums, sums, strict=True)):
            differs |= (ours != theirs[found]).astype(np.int64) << bit
        differs &= rows.columns
        wrong = differs != 0
        self._note("differing", rows.take(wrong), differs[wrong])

    def _without_record(self, rows: _Rows) -> None:
        """Count rows for which a read of the log returned no record, by the reason.

        The log start may have moved beyond some of the rows. If a batch of the log still covers a
        row's offset, the offset belongs to a marker or an aborted record; otherwise compaction
        removed the record.
        """
        if not len(rows.offsets):
            return
        start = self._client.list_offsets({self._tp: EARLIEST})[self._tp].offset
        low = int(np.searchsorted(rows.offsets, start))
        self._counts["unreached"] += low
        rows = rows.take(slice(low, None))
        if len(rows.offsets) and self._is_compacted:
            breaks = np.flatnonzero(np.diff(rows.offsets) > 1)
            gaps = zip(
                rows.offsets[np.concatenate(([0], breaks + 1))].tolist(),
                (rows.offsets[np.concatenate((breaks, [-1]))] + 1).tolist(),
                strict=True,
            )
            is_held = np.zeros(len(rows.offsets), bool)
            looked = LogGaps(self._client).left_out(self._tp, [Gap(*each) for each in gaps])
            for start, end in looked:
                is_held |= (rows.offsets >= start) & (rows.offsets < end)
            self._counts["removed"] += int((~is_held).sum())
            rows = rows.take(is_held)
        self._note("unknown", rows)

    @cached_property
    def _is_compacted(self) -> bool:
        return is_compacted(self._client, self._job.topic)

    def _note(self, kind: str, rows: _Rows, differs: Ints | None = None) -> None:
        """Count faulty rows, and name their ranges by file and faulty columns."""
        count = len(rows.offsets)
        if not count:
            return
        self._counts[kind] += count
        bits = np.zeros(count, np.int64) if differs is None else differs
        breaks = np.flatnonzero(
            (np.diff(rows.offsets) > 1) | (np.diff(bits) != 0) | (np.diff(rows.files) != 0)
        )
        firsts = np.concatenate(([0], breaks + 1))
        lasts = np.concatenate((breaks, [count - 1]))
        for first, last in zip(firsts, lasts, strict=True):
            if len(self._faults) == _NAMED_RANGES:
                return
            names = [name for bit, name in enumerate(self._job.compared) if bits[first] >> bit & 1]
            self._faults.append(
                {
                    "partition": self._tp.partition,
                    "from": int(rows.offsets[first]),
                    "to": int(rows.offsets[last]) + 1,
                    "columns": names,
                    "file": self._job.files[int(rows.files[first])].path,
                }
            )


def _windows(rows: _Rows) -> Iterator[_Rows]:
    """Yield rows in parts, split at long gaps between offsets, which are not read from the log."""
    if not len(rows.offsets):
        return
    breaks = np.flatnonzero(np.diff(rows.offsets) > _SKIPPED_OFFSETS) + 1
    for first, end in zip([0, *breaks], [*breaks, len(rows.offsets)], strict=True):
        yield rows.take(slice(int(first), int(end)))
