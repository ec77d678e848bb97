"""Parquet files that a run stages: their names, their format, their statistics.

    run-BEGAN-ID/COLUMN=VALUE/part-TOPIC-PARTITION-UNIQUE.parquet

BEGAN is the version of the table at which the run began, which fences compare (`protocol`). A file
has the rows of one partition of the topic in order of offset, with one value of each partition
column of the table, if it has any (`partitioning`). Each task writes files under unique names. A
failed task's files lie in the folder of the run, but the run never commits them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MIB
from tidelog.spark.lake.field_ids import with_field_ids
from tidelog.spark.lake.partitioning import (
    Values,
    by_values,
    derives_day,
    folder_of_values,
    with_day,
)
from tidelog.spark.lake.protocol import StagedFile
from tidelog.spark.lake.row_checks import check_rows
from tidelog.spark.lake.state import LakeFile
from tidelog.spark.lake.stores import LakeStore, sync_file
from tidelog.spark.lake.table import Lake

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

#: Bytes of rows in one row group, before compression; a task holds this many bytes in memory.
ROW_GROUP_BYTES: Final = 64 * MIB
#: Default size of a file: large enough to keep files few, small enough for parallel reads.
TARGET_FILE_BYTES: Final = 128 * MIB
#: Maximum number of files that a task has open. Rows in order of partition value need only one open
#: file.
MOST_OPEN: Final = 16
_FOLDER: Final = re.compile(r"run-([0-9]+)-([0-9a-f]{16})")
#: The key by which a task divides rows into files: the Kafka partition, and the values of the
#: table's partition columns in their order.
_Split = tuple[int, tuple[str | None, ...]]
_STAGED: Final = re.compile(rf"({_FOLDER.pattern})/.+\.parquet")


def new_run() -> str:
    """Return a new unique id for a run."""
    return uuid.uuid4().hex[:16]


def folder_of(run: str, began: int) -> str:
    """Return the folder of a run that began at a version of the table."""
    return f"run-{began}-{run}"


def staged_files(store: LakeStore) -> list[StagedFile]:
    """Return the files that runs have staged, committed or not. Raises TableError."""
    found = []
    for file in store.listed():
        match = _STAGED.fullmatch(file.path)
        if match is not None:
            found.append(StagedFile(file.path, match[3], int(match[2]), file.modified_ms))
    return found


@dataclass(frozen=True, slots=True)
class StagingFolder:
    """The folder of a store into which the tasks of a run write."""

    store: LakeStore
    folder: str
    #: Ids of the table's columns by their paths, for a format whose files carry them.
    field_ids: Mapping[str, int] = field(default_factory=dict)
    #: Whether data files contain the table's partition columns; Delta has them only in its log.
    keeps_partition_columns: bool = False


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The description of the files that a run's tasks write: folder, columns and sizes."""

    place: StagingFolder
    topic: str
    #: The table's columns in this run, with the partition columns.
    schema: pa.Schema
    target_bytes: int = TARGET_FILE_BYTES
    #: Names of the table's partition columns.
    partition_by: tuple[str, ...] = ()

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that the data files contain."""
        import pyarrow as pa

        if self.place.keeps_partition_columns:
            return self.schema
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    @property
    def row_group_bytes(self) -> int:
        """Bytes of rows in one row group, before compression."""
        return min(ROW_GROUP_BYTES, self.target_bytes)


def run_folder(table: Lake, run: str, began: int) -> StagingFolder:
    """Return the folder of a run that began at a version of a table. Raises TableError."""
    return StagingFolder(
        table.store, folder_of(run, began), table.field_ids(), table.keeps_partition_columns
    )


def discard(place: StagingFolder, kept: Collection[LakeFile] = ()) -> None:
    """Delete all files in a run's folder except `kept`, such as the files of failed tasks."""
    names = {file.path for file in kept}
    listed = place.store.listed(place.folder)
    place.store.delete([file.path for file in listed if file.path not in names])


class LakeFileWriter:
    """A writer of a Parquet file with rows of one partition, which come in order of offset."""

    def __init__(self, plan: FilePlan, partition: int, values: Values | None = None) -> None:
        self._plan = plan
        self._schema = plan.file_schema
        self._values = dict(values or {})
        folder = f"{plan.place.folder}/{folder_of_values(self._values)}"
        self.path = f"{folder}part-{plan.topic}-{partition}-{uuid.uuid4().hex[:12]}.parquet"
        self._partition = partition
        self._held: list[pa.RecordBatch] = []
        #: Bytes of rows that are not yet in a row group.
        self.held_bytes = 0
        self._sink: Any = None
        self._writer: parquet.ParquetWriter | None = None
        self._footers: list[Any] = []
        self._written_bytes = self._group_bytes = 0
        self.rows = 0

    @property
    def is_full(self) -> bool:
        """Whether another row group as large as the last one would exceed the target size."""
        return self._written_bytes + self._group_bytes > self._plan.target_bytes

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows; write a row group once enough rows are buffered."""
        self._held.append(batch)
        self.held_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self.held_bytes >= self._plan.row_group_bytes:
            self.flush()

    def close(self) -> LakeFile:
        """Write the buffered rows and the footer, sync the file, and return it."""
        self.flush()
        assert self._writer is not None
        self._writer.close()
        size_bytes = self._sink.tell()
        self._sink.close()
        store = self._plan.place.store
        if store.is_local:
            sync_file(os.path.join(store.location, self.path))
        footer = self._footers[0]
        low, high = bounds(footer, "offset")
        return LakeFile(
            self.path,
            self._partition,
            low,
            high + 1,
            self.rows,
            size_bytes,
            stats_of(footer),
            self._values,
        )

    def abandon(self) -> None:
        """Delete the incomplete file."""
        if self._writer is not None:
            for part in (self._writer, self._sink):
                with contextlib.suppress(OSError):  # closing an unwritable file fails, too
                    part.close()
            self._plan.place.store.delete([self.path])

    def flush(self) -> None:
        """Write the buffered rows as a row group."""
        import pyarrow as pa
        from pyarrow import parquet

        schema = with_field_ids(self._schema, self._plan.place.field_ids)
        if self._writer is None:
            opened = self._plan.place.store.open()
            if self._plan.place.store.is_local:
                opened.create_dir(os.path.dirname(self.path))
            self._sink = opened.open_output_stream(self.path)
            self._writer = parquet.ParquetWriter(
                self._sink,
                schema,
                compression="zstd",
                store_schema=False,
                # A Parquet dictionary of offsets is useless, because no offset repeats.
                use_dictionary=[name for name in schema.names if name != "offset"],
                metadata_collector=self._footers,
            )
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, schema))
            self._held, self.held_bytes = [], 0
            before, self._written_bytes = self._written_bytes, self._sink.tell()
            self._group_bytes = self._written_bytes - before


class TaskFiles:
    """The open and the closed files of one task.

    A task has a file open for each partition and each combination of partition values, at most
    MOST_OPEN of them. All open files together buffer at most the rows of one row group.
    """

    def __init__(self, plan: FilePlan) -> None:
        self._plan = plan
        self._schema = plan.file_schema
        #: The open file of each split, the most recently used file last.
        self._open: dict[_Split, LakeFileWriter] = {}
        self._closed: list[LakeFile] = []
        self._evicted: dict[_Split, None] = {}
        #: Number of files that continue a file which was closed early, because a task may have only
        #: MOST_OPEN files open.
        self.reopened = 0

    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        """Add rows of a partition, which come in order of offset.

        Raises TableError for a row that no reader could read.
        """
        names = self._plan.partition_by
        if derives_day(rows.schema.names, names):
            rows = with_day(rows)
        check_rows(partition, rows, self._schema.names, names)
        empty_is_null = not self._plan.place.keeps_partition_columns
        split = by_values(rows, names, empty_is_null=empty_is_null) if names else [((), rows)]
        for values, part in split:
            columns = part.select(self._schema.names).cast(self._schema)
            self._append((partition, values), columns)

    def close(self) -> list[LakeFile]:
        """Close all files, and return them in the order in which they were closed."""
        while self._open:
            self._close(next(iter(self._open)))
        return self._closed

    def abandon(self) -> None:
        """Delete the files that are open."""
        for writer in self._open.values():
            writer.abandon()

    def _append(self, split: _Split, rows: pa.RecordBatch) -> None:
        writer = self._open.pop(split, None)
        if writer is None:
            if len(self._open) == MOST_OPEN:
                oldest = next(iter(self._open))
                self._evicted[oldest] = None
                self._close(oldest)
            self.reopened += split in self._evicted
            partition, values = split
            named = dict(zip(self._plan.partition_by, values, strict=True))
            writer = LakeFileWriter(self._plan, partition, named)
        self._open[split] = writer
        writer.append(rows)
        if writer.is_full:
            self._evicted.pop(split, None)
            self._close(split)
        if sum(each.held_bytes for each in self._open.values()) > self._plan.row_group_bytes:
            max(self._open.values(), key=lambda each: each.held_bytes).flush()

    def _close(self, split: _Split) -> None:
        self._closed.append(self._open[split].close())
        del self._open[split]


def partitions_of(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (partition, slice of `batch`) for a batch whose rows are in order of partition."""
    import numpy as np

    numbers = batch.column("partition").to_numpy(zero_copy_only=False)
    if not len(numbers):
        return
    borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
    for start, end in pairwise(borders):
        yield int(numbers[start]), batch.slice(int(start), int(end - start))


def in_columns(
    batch: pa.RecordBatch, schema: pa.Schema, values: Values | None = None
) -> pa.RecordBatch:
    """Return a file's rows with the columns of `schema`.

    `values` has the values of the table's partition columns. Any other column that the file lacks
    is null.
    """
    import pyarrow as pa

    def column(field: pa.Field) -> pa.Array:
        if values is not None and field.name in values:
            text = pa.scalar(values[field.name], pa.string())
            return pa.repeat(text.cast(field.type), batch.num_rows)
        if field.name in batch.schema.names:
            return batch.column(field.name).cast(field.type)
        return pa.nulls(batch.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


def bounds(footer: Any, column: str) -> tuple[int, int]:
    """Return the lowest and the highest value of an integer column of a file."""
    names = [footer.schema.column(place).path for place in range(len(footer.schema))]
    place = names.index(column)
    parts = [
        footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)
    ]
    return min(part.min for part in parts), max(part.max for part in parts)


def stats_of(footer: Any) -> str:
    """Return a file's statistics as Delta's JSON, for columns of numbers and times."""
    lowest: dict[str, int | str] = {}
    highest: dict[str, int | str] = {}
    nulls: dict[str, int] = {}
    for place in range(len(footer.schema)):
        path = footer.schema.column(place).path
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        parts = [group.column(place).statistics for group in groups]
        if "." in path or not all(part is not None and part.has_min_max for part in parts):
            continue
        try:
            low = as_json(min(part.min for part in parts), up=False)
            high = as_json(max(part.max for part in parts), up=True)
        except (ValueError, OverflowError):
            continue  # a time that Python has no type for, such as the year 55,000
        if low is None or high is None:
            continue
        lowest[path], highest[path] = low, high
        nulls[path] = sum(part.null_count or 0 for part in parts)
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": lowest,
            "maxValues": highest,
            "nullCount": nulls,
        },
        separators=(",", ":"),
    )


def as_json(value: Any, *, up: bool) -> int | str | None:
    """Return a bound as Delta writes it; None for a type whose bounds are not written.

    Delta's bounds have milliseconds; an upper bound is rounded up, so that no reader skips a file
    because of microseconds.
    """
    from datetime import date, datetime, timedelta

    if isinstance(value, bool) or not isinstance(value, int | date):
        return None
    if isinstance(value, datetime):
        rest = value.microsecond % 1_000
        shift = timedelta(microseconds=(1_000 - rest) % 1_000 if up else -rest)
        return (value + shift).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value
