"""One task's write: the task takes Arrow batches and returns when all records are acknowledged.

The task gathers rows into chunks, gives each row its partition, and encodes the chunk's records
partition by partition. The task passes the encoded batches to a producer with several requests in
flight. The producer's limit of unacknowledged bytes makes the task wait. A row that cannot be
written ends the task with an error that names topic, partition, the row's place in the task and the
reason. The module needs no Spark: the caller brings Arrow batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.core.errors import TidelogError
from tidelog.core.limits import MIB
from tidelog.core.types import TopicPartition
from tidelog.records.batch import NO_TIMESTAMP
from tidelog.runtime.pipelined_producer import PipelinedProducer
from tidelog.spark.sink.batch_marks import AttemptMark
from tidelog.spark.sink.placement import Ints, TopicPlacement
from tidelog.spark.sink.record_payloads import ChunkEncoder, encoded_headers
from tidelog.spark.sink.row_columns import RowColumns, SinkError, columns_of
from tidelog.spark.sink.settings import SinkSettings

#: Minimum size of a chunk of rows, which should fill a whole batch in each partition;
#: _MOST_CHUNK_BYTES is the maximum.
_LEAST_CHUNK_BYTES: Final = 4 * MIB
_MOST_CHUNK_BYTES: Final = 16 * MIB
_NO_TIMESTAMP_US: Final = -(2**63)


class WriteError(TidelogError):
    """The error of a failed write task, with the reason and the number of records that were
    acknowledged before.
    """


class WriteTask:
    """The rows of one task attempt, which are written to the cluster."""

    def __init__(self, settings: SinkSettings, mark: AttemptMark | None) -> None:
        """Write with `settings`; each record carries `mark`, if given, in a header."""
        self._settings = settings
        self._mark = mark
        self._producer = PipelinedProducer(
            settings.bootstrap, settings.producer, settings.client_id
        )
        self._placements: dict[str, TopicPlacement] = {}
        self._topics: list[str] = []
        self._counts: list[int] = []
        self._chunk_bytes = _LEAST_CHUNK_BYTES
        self._rows = 0

    @property
    def acknowledged(self) -> dict[TopicPartition, int]:
        """Number of acknowledged records by partition."""
        return self._producer.acknowledged

    @property
    def acknowledged_bytes(self) -> int:
        """Number of bytes of the acknowledged batches."""
        return self._producer.acknowledged_bytes

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Write all rows; return their number after all are acknowledged. Raises WriteError."""
        try:
            for chunk, is_last in self._chunks(batches):
                self._write_chunk(columns_of(chunk, self._rows, self._settings), is_last)
                self._rows += sum(each.num_rows for each in chunk)
            self._producer.flush()
        except TidelogError as error:
            done = self._producer.acknowledged_records
            raise WriteError(f"{error}; {done} records of this task were acknowledged") from error
        finally:
            self._producer.close()
        return self._rows

    def _chunks(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[list[pa.RecordBatch], bool]]:
        """Yield chunks: Arrow batches of some MiB, and whether they are the task's last."""
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            for part in self._parts(batch):
                if held and size >= self._chunk_bytes:
                    yield held, False
                    held, size = [], 0
                held.append(part)
                size += part.nbytes
        if held:
            yield held, True

    def _parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield slices of an Arrow batch, none larger than the maximum size of a chunk."""
        if not batch.num_rows:
            return
        rows = max(1, batch.num_rows * _MOST_CHUNK_BYTES // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def _write_chunk(self, columns: RowColumns, is_last: bool) -> None:
        count = columns.count
        rows = np.arange(columns.first_row, columns.first_row + count, dtype=np.int64)
        now_ms = time.time_ns() // 1_000_000
        marks = None
        if self._mark is not None:
            marks = self._mark.values(rows, int(rows[-1]) if is_last else None)
        headers = encoded_headers(columns.headers, marks, count, rows)
        times = _timestamps_ms(columns, rows, now_ms)
        encoder = ChunkEncoder(columns.keys, columns.values, headers, times)
        self._check_sizes(rows, encoder.sizes)
        codes = self._place(columns, rows, encoder.sizes)
        if (codes[1:] < codes[:-1]).any():
            order = np.argsort(
                codes.astype(np.uint16) if codes.max() < 1 << 16 else codes, kind="stable"
            )
            codes, rows = codes[order], rows[order]
            encoder.reorder(order)
        edges = np.flatnonzero(np.diff(codes, prepend=-1, append=-1))
        batches: list[tuple[int, int]] = []
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            batches += encoder.batches_of(start, end, self._settings.batch_bytes)
        for payload in encoder.encode(batches):
            tp = self._partition(int(codes[payload.start]))
            numbers = memoryview(rows[payload.start : payload.end].data)
            self._producer.add(tp, payload.data, numbers, payload.timestamps_ms)

    def _check_sizes(self, rows: Ints, sizes: Ints) -> None:
        limit = self._settings.producer.max_request_bytes
        large = np.flatnonzero(sizes > limit)
        if large.size:
            raise SinkError(
                f"row {rows[large[0]]}: a record of {sizes[large[0]]} bytes; no request may be"
                f" larger than kafka.max.request.size ({limit})"
            )

    # -- partitions -----------------------------------------------------------------------------

    def _place(self, columns: RowColumns, rows: Ints, sizes: Ints) -> Ints:
        """Return for each row a code, a number that identifies the row's topic and partition."""
        keys = None if self._settings.ignore_keys else columns.keys
        if columns.topics is None:
            assert self._settings.topic is not None, "the schema was checked on the driver"
            base, placement = self._topic(self._settings.topic)
            return base + placement.place(rows, keys, sizes, columns.partitions)
        if columns.topics.null_count:
            place = int(np.flatnonzero(columns.topics.is_null().to_numpy(zero_copy_only=False))[0])
            raise SinkError(
                f"row {rows[place]}: column topic is null; name a topic in each row, or set the"
                " option topic"
            )
        names = columns.topics.dictionary_encode()
        numbers = names.indices.to_numpy()
        codes = np.empty(len(rows), dtype=np.int64)
        for number, name in enumerate(names.dictionary.to_pylist()):
            base, placement = self._topic(name)
            mine = np.flatnonzero(numbers == number)
            picked = pa.array(mine)
            codes[mine] = base + placement.place(
                rows[mine],
                None if keys is None else keys.take(picked),
                sizes[mine],
                None if columns.partitions is None else columns.partitions.take(picked),
            )
        return codes

    def _topic(self, name: str) -> tuple[int, TopicPlacement]:
        """Return the number that stands for the topic's partition 0, and the topic's
        TopicPlacement.
        """
        if name not in self._placements:
            if not name:
                raise SinkError("column topic is empty; name a topic in each row")
            count = self._producer.partition_count(name)
            self._placements[name] = TopicPlacement(name, count, self._settings.batch_bytes)
            self._topics.append(name)
            self._counts.append(count)
            wanted = sum(self._counts) * self._settings.batch_bytes
            self._chunk_bytes = min(max(_LEAST_CHUNK_BYTES, wanted), _MOST_CHUNK_BYTES)
        place = self._topics.index(name)
        return sum(self._counts[:place]), self._placements[name]

    def _partition(self, code: int) -> TopicPartition:
        for name, count in zip(self._topics, self._counts, strict=True):
            if code < count:
                return TopicPartition(name, code)
            code -= count
        raise AssertionError("a number beyond all partitions")


def _timestamps_ms(columns: RowColumns, rows: Ints, now_ms: int) -> Ints | int:
    """Return each row's timestamp, or the present time for all rows; null becomes the present time.

    Raises SinkError for a time before 1970, which Kafka's producers reject as well. A time of -1
    means a record without a timestamp, and is kept.
    """
    if columns.timestamps is None:
        return now_ms
    micros = pc.cast(columns.timestamps, pa.int64()).fill_null(_NO_TIMESTAMP_US)
    numbers = np.asarray(micros.to_numpy(zero_copy_only=False), dtype=np.int64)
    times = np.where(numbers == _NO_TIMESTAMP_US, now_ms, numbers // 1000)
    early = np.flatnonzero(times < NO_TIMESTAMP)
    if early.size:
        raise SinkError(
            f"row {rows[early[0]]}: column timestamp is {-times[early[0]]} ms before 1970-01-01;"
            " expected a time since then, or null for now"
        )
    return times
