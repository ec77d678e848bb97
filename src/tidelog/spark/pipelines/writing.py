"""Files that Spark's tasks stage: records as they are read, or the rows of a DataFrame.

A task that reads records writes them itself, without rows in Java. Rows of a transform come to
Python as Arrow batches. Rows with the column `error` are bad records, which go to the dead-letter
path, or end the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.spark.lake.partitioning import DAY, TIMESTAMP
from tidelog.spark.lake.staging import FilePlan, TaskFiles, partitions_of
from tidelog.spark.lake.state import LakeFile, TableError
from tidelog.spark.lake.stores import reason_of
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.pipelines.task_rows import TaskFailedError, run_tasks
from tidelog.spark.planning import OffsetRange
from tidelog.spark.shipping import shipped
from tidelog.spark.splitting import split_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

#: The column in which a transform gives the reason for a bad record; null for a good one.
ERROR_COLUMN: Final = "error"
#: Parts of the names of Spark's types that a table cannot have.
_NO_COLUMNS: Final = ("void", "interval", "variant")
#: Partition and offset are moved to the front if at least this number of columns, or a nested
#: column, would precede them: Delta keeps bounds of the first 32 columns, and counts each field of
#: a struct.
_BOUNDED_COLUMNS: Final = 8
#: Columns of a dead letter.
LETTER: Final = ("topic", "partition", "offset", "key", "value", ERROR_COLUMN)


class TargetError(TidelogError):
    """The error for a place that a task cannot write to."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """The first bad record of a run: a record that a transform rejects."""

    partition: int
    offset: int
    error: str


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files and dead-letter files of a run; the first bad record if there is no such path."""

    files: tuple[LakeFile, ...] = ()
    letters: tuple[LakeFile, ...] = ()
    bad: BadRecord | None = None
    #: Number of files that continue a file which the task closed early, because it may have only
    #: MOST_OPEN files open.
    reopened: int = 0


@dataclass(frozen=True, slots=True)
class _RangeJob:
    options: ReadOptions
    wanted: OffsetRange
    plan: FilePlan


@dataclass(frozen=True, slots=True)
class _FrameJob:
    """The work of one Spark task that writes rows of a DataFrame."""

    plan: FilePlan
    letters: FilePlan | None
    is_judged: bool
    #: Names of the rows' columns.
    names: tuple[str, ...]


def write_ranges(
    spark: SparkSession,
    bootstrap: str,
    ranges: Sequence[OffsetRange],
    plan: FilePlan,
    *,
    offsets_per_task: int,
) -> WrittenFiles:
    """Write the records of `ranges`.

    Raises TaskFailedError, or Spark's errors (also if an executor lacks a package).
    """
    columns = plan.schema.names
    if DAY in columns:
        columns = [name for name in dict.fromkeys([*columns, TIMESTAMP]) if name != DAY]
    options = parse_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.client.id": "tidelog-ingest",
            "kafka.isolation.level": "read_committed",
            "assign": json.dumps({ranges[0].tp.topic: [each.tp.partition for each in ranges]}),
            "columns": ",".join(columns),
        }
    )
    offsets = sum(each.size for each in ranges)
    tasks = split_ranges(ranges, max(1, -(-offsets // offsets_per_task)))
    jobs = [_RangeJob(options, each, plan) for each in tasks]
    return _written(run_tasks(spark, jobs, _write_range))


def _write_range(job: _RangeJob) -> Iterator[dict[str, Any]]:
    """Write the records of a range in a task, and yield the files. Raises TargetError."""
    from tidelog.spark.reading import read_range

    files = TaskFiles(job.plan)
    try:
        for batch in read_range(job.options, job.wanted):
            files.append(job.wanted.tp.partition, batch)
        yield from _rows_of(files)
    except OSError as error:
        files.abandon()
        raise TargetError(_target_failure(job.plan, error)) from error
    except BaseException:
        files.abandon()
        raise


def write_frame(
    frame: DataFrame, plan: FilePlan, letters: FilePlan | None, *, is_judged: bool
) -> WrittenFiles:
    """Write the rows of a DataFrame, which has the columns partition and offset.

    `is_judged` is whether the column `error` marks bad records. Raises TaskFailedError, or Spark's
    errors.
    """
    job = _FrameJob(plan, letters, is_judged, tuple(frame.columns))
    # mapInArrow cannot find columns with a dot in their names, so the columns get numbers as names,
    # and the job carries the real names.
    numbers = [str(number) for number in range(len(frame.columns))]
    # Sorted rows let a task have few files open, because the rows of each partition value come
    # together.
    keys = [_sort_key(frame, name, plan) for name in plan.partition_by if name in frame.columns]
    ordered = frame.sortWithinPartitions("partition", *keys, "offset").toDF(*numbers)
    rows = [
        json.loads(row["row"])
        for row in ordered.mapInArrow(shipped(_frame_task(job)), "row string").collect()
    ]
    for row in rows:
        if "failed" in row:
            raise TaskFailedError(row["failed"])
    return _written(rows)


def _written(rows: Sequence[dict[str, Any]]) -> WrittenFiles:
    """Return the files and the bad record that the rows of all tasks describe."""
    bad = sorted((row["bad"] for row in rows if "bad" in row), key=lambda each: each[:2])
    return WrittenFiles(
        tuple(LakeFile(**row["file"]) for row in rows if "file" in row),
        tuple(LakeFile(**row["letter"]) for row in rows if "letter" in row),
        BadRecord(*bad[0]) if bad else None,
        sum(row.get("reopened", 0) for row in rows),
    )


def _rows_of(files: TaskFiles) -> list[dict[str, Any]]:
    """Close a task's files, and return them as rows."""
    rows: list[dict[str, Any]] = [{"file": asdict(each)} for each in files.close()]
    return [*rows, {"reopened": files.reopened}]


def _sort_key(frame: DataFrame, name: str, plan: FilePlan) -> Column:
    """Return the partition column `name` as a sort key, which brings rows of one value together.

    In Delta an empty text of a partition column is stored as null, so it is null in the sort key.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it
    from pyspark.sql.types import StringType

    column = frame[_quoted(name)]
    if plan.place.keeps_partition_columns or not isinstance(
        frame.schema[name].dataType, StringType
    ):
        return column
    return F.when(column != "", column)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def table_schema(frame: DataFrame, dropped: Sequence[str]) -> pa.Schema:
    """Return the schema of a table for a DataFrame: times in UTC, offsets among the first columns.

    Raises TableError for a column that a table cannot have.
    """
    import pyarrow as pa
    from pyspark.errors import PySparkException

    for column in frame.schema:
        text = column.dataType.simpleString()
        if column.name not in dropped and any(kind in text for kind in _NO_COLUMNS):
            raise TableError(f"column {column.name!r} is of type {text}; cast it in the transform")
    try:
        # Spark starts no job for zero rows.
        offered = frame.drop(*dropped).limit(0).toArrow().schema
    except (PySparkException, ValueError, TypeError) as error:
        raise TableError(f"the transform's columns are not those of a table: {error}") from error
    fields = []
    for column in offered:
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            column = column.with_type(pa.timestamp("us", "UTC"))
        fields.append(column.with_nullable(True))
    counted = ("partition", "offset")
    nested = [place for place, field in enumerate(fields) if pa.types.is_nested(field.type)]
    last = max(place for place, field in enumerate(fields) if field.name in counted)
    if last >= min([_BOUNDED_COLUMNS, *nested]):
        fields.sort(key=lambda field: field.name not in counted)
    return pa.schema(fields)


def _frame_task(job: _FrameJob) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        task = _FrameTask(job)
        try:
            rows = task.run(batches)
        except OSError as error:
            task.abandon()
            rows = [{"failed": _target_failure(job.plan, error)}]
        except TidelogError as error:
            task.abandon()
            rows = [{"failed": str(error)}]
        except BaseException:
            task.abandon()
            raise
        texts = [json.dumps(row) for row in rows]
        yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["row"])

    return run


class _FrameTask:
    """The files and dead-letter files of a task.

    Without a dead-letter path, the task keeps the place and the reason of its first bad record.
    """

    def __init__(self, job: _FrameJob) -> None:
        self._job = job
        self._files = TaskFiles(job.plan)
        self._letters = None if job.letters is None else TaskFiles(job.letters)
        self._bad: tuple[int, int, str] | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
        """Write all rows of the task; return a row for each written file.

        Without a dead-letter path, one more row has the first bad record, if there is any.
        """
        for numbered in batches:
            batch = numbered.rename_columns(list(self._job.names))
            _check_place(batch)
            for partition, rows in partitions_of(batch):
                good = self._without_bad(partition, rows) if self._job.is_judged else rows
                if good.num_rows:
                    self._files.append(partition, good)
        found = _rows_of(self._files)
        if self._letters is not None:
            found += [{"letter": asdict(each)} for each in self._letters.close()]
        if self._bad is not None:
            found.append({"bad": self._bad})
        return found

    def abandon(self) -> None:
        """Delete the files that are open."""
        self._files.abandon()
        if self._letters is not None:
            self._letters.abandon()

    def _without_bad(self, partition: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow.compute as pc

        is_bad = pc.is_valid(rows.column(ERROR_COLUMN))
        if not pc.any(is_bad).as_py():
            return rows
        bad = rows.filter(is_bad)
        if self._letters is not None:
            self._letters.append(partition, bad)
        else:
            first = bad.slice(0, 1).to_pylist()[0]
            found = (partition, first["offset"], str(first[ERROR_COLUMN]))
            self._bad = found if self._bad is None else min(self._bad, found)
        return rows.filter(pc.invert(is_bad))


def _check_place(batch: pa.RecordBatch) -> None:
    """Raise TargetError if a transform returned rows without a partition or an offset."""
    for name in ("partition", "offset"):
        missing = batch.column(name).null_count
        if missing:
            raise TargetError(
                f"the transform returns {missing} rows without {name!r}: a row keeps the partition"
                " and the offset of its record"
            )


def _target_failure(plan: FilePlan, error: OSError) -> str:
    store = plan.place.store
    remedy = (
        "The executors must see a local path; an object store has a URI, such as s3://bucket/table"
        if store.is_local
        else "Nothing was committed; the executors write with the storage options of the run, or"
        " with those of their own environment"
    )
    return f"{store.location} cannot be written by a task: {reason_of(error)}. {remedy}"
