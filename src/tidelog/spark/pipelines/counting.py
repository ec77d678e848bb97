"""Offsets in the files of a table, counted on the driver or by Spark's tasks.

A count opens each file, as readers do. The count names a file that is missing, unreadable, or
differs from its description in the table's log. The driver counts a small run faster than Spark
starts a job: two columns of a million rows are read in some 20 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.spark.lake.state import LakeFile
from tidelog.spark.lake.stores import LakeStore, reason_of
from tidelog.spark.pipelines.offset_faults import FileSpan
from tidelog.spark.pipelines.task_rows import run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Maximum number of rows that the driver counts itself.
DRIVER_ROWS: Final = 4_000_000
#: Text of a fault about a missing file.
MISSING_FILE: Final = "is missing"


@dataclass(frozen=True, slots=True)
class OffsetColumns:
    """The columns of a record's partition and offset; a dotted name is a field of a struct.

    With a topic, only the rows with this topic in `topic_column` are counted.
    """

    partition: str = "partition"
    offset: str = "offset"
    topic_column: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class FileFault:
    """A file that readers cannot read, or whose content differs from the table's log."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The offset spans that each file of a table contains, and the files with faults."""

    by_file: tuple[FileSpan, ...]
    faults: tuple[FileFault, ...] = ()

    @property
    def spans(self) -> pa.Table:
        """The offset spans of all files, in one Arrow table."""
        import pyarrow as pa

        from tidelog.spark.pipelines.spans import SPANS

        columns = [[getattr(span, name) for span in self.by_file] for name in SPANS.names]
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, SPANS, strict=True)
        ]
        return pa.table(arrays, schema=SPANS)


@dataclass(frozen=True, slots=True)
class _CountJob:
    store: LakeStore
    file: LakeFile
    columns: OffsetColumns


def count_files(
    spark: SparkSession,
    store: LakeStore,
    files: Sequence[LakeFile],
    columns: OffsetColumns | None = None,
) -> FileCounts:
    """Count the offsets in Parquet files of a store. Raises TaskFailedError."""
    jobs = [_CountJob(store, file, columns or OffsetColumns()) for file in files]
    if all(file.rows >= 0 for file in files) and sum(file.rows for file in files) <= DRIVER_ROWS:
        rows = [row for job in jobs for row in _count(job)]
    else:
        rows = run_tasks(spark, jobs, _count)
    return FileCounts(
        tuple(FileSpan(row["path"], *span) for row in rows for span in row["spans"]),
        tuple(FileFault(row["path"], row["fault"]) for row in rows if row["fault"] is not None),
    )


def _count(job: _CountJob) -> Iterator[dict[str, Any]]:
    """Yield the spans of a file, and its fault, if it has one."""
    import pyarrow as pa
    from pyarrow import parquet

    from tidelog.spark.pipelines.spans import spans_of

    spans: list[tuple[int, ...]] = []
    file, columns = job.file, job.columns
    try:
        with (
            job.store.open().open_input_file(file.path) as source,
            parquet.ParquetFile(source) as opened,
        ):
            size_bytes = source.size()
            roots = roots_of(opened.schema_arrow, columns, file.values)
            batches = opened.iter_batches(columns=sorted(roots))
            for batch in spans_of(offsets_of(rows, columns, file.values) for rows in batches):
                spans += zip(*(column.to_pylist() for column in batch.columns), strict=True)
            rows = opened.metadata.num_rows
        reason = _difference(file, rows, size_bytes, spans)
    except FileNotFoundError:
        reason = MISSING_FILE
        reason += described(file)
    except KeyError as error:
        reason = f"has no column {error}"
    except (pa.ArrowException, OSError) as error:
        reason = f"cannot be read: {reason_of(error)}"
    yield {"path": file.path, "spans": spans, "fault": reason}


def described(file: LakeFile) -> str:
    """Return a text with the offsets that the table's log states for a file, to end a sentence."""
    if file.start < 0 or file.partition < 0:
        return ""
    return f", with offsets {file.start} to {file.end} of partition {file.partition}"


def roots_of(
    schema: pa.Schema, columns: OffsetColumns, values: Mapping[str, str | None]
) -> set[str]:
    """Return the names of the top-level columns to read from a file for `columns`.

    Partition columns, which `values` has, are not in the file.
    """
    names = {columns.partition, columns.offset, columns.topic_column} - {None, *values}
    return {name if name in schema.names else name.partition(".")[0] for name in names if name}


def offsets_of(
    rows: pa.RecordBatch,
    columns: OffsetColumns,
    values: Mapping[str, str | None],
    kept: Sequence[str] = (),
) -> pa.RecordBatch:
    """Return rows as the columns partition, offset, and `kept`. Raises KeyError, ArrowException."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if columns.topic is not None and columns.topic_column is not None:
        topics = _column(rows, columns.topic_column, values)
        rows = rows.filter(pc.fill_null(pc.equal(topics.cast(pa.string()), columns.topic), False))
    partitions = _column(rows, columns.partition, values).cast(pa.int32())
    offsets = _column(rows, columns.offset, values).cast(pa.int64())
    for name, numbers in ((columns.partition, partitions), (columns.offset, offsets)):
        if numbers.null_count:
            raise pa.ArrowInvalid(f"column {name} has {numbers.null_count} nulls")
        lowest = pc.min(numbers).as_py()
        if lowest is not None and lowest < 0:
            raise pa.ArrowInvalid(f"column {name} has {lowest}, which no record has")
    more = [rows.column(name) for name in kept]
    return pa.RecordBatch.from_arrays([partitions, offsets, *more], ["partition", "offset", *kept])


def _column(rows: pa.RecordBatch, name: str, values: Mapping[str, str | None]) -> pa.Array:
    """Return the column with a name; a dot in the name leads to a field of a struct column.

    `values` are the file's values of the table's partition columns, which the file itself lacks.
    The result for a partition column has the same value in every row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if name in values:
        return pa.array([values[name]] * rows.num_rows, pa.string())
    first, *rest = [name] if name in rows.schema.names else name.split(".")
    column = rows.column(first)
    for each in rest:
        column = pc.struct_field(column, each)
    return column


def _difference(
    file: LakeFile, rows: int, size_bytes: int, spans: Sequence[tuple[int, ...]]
) -> str | None:
    """Return how a file differs from its description, whose unknown numbers are -1."""
    if rows != file.rows >= 0:
        return f"has {rows} rows; the table's log says {file.rows}"
    numbers = sorted({span[0] for span in spans})
    if file.partition >= 0 and numbers not in ([], [file.partition]):
        return f"has rows of partitions {numbers}; the table's log says {file.partition}"
    if spans and file.start >= 0:
        start, end = min(span[1] for span in spans), max(span[2] for span in spans)
        if (start, end) != (file.start, file.end):
            return f"has offsets {start} to {end}; the table's log says {file.start} to {file.end}"
    if size_bytes != file.size_bytes:
        return f"has {size_bytes} bytes; the table's log says {file.size_bytes}"
    return None
