"""Parquet files written by the tasks that read the records, without rows in Java.

Direct files need untransformed rows, and a table on a local path that all executors share. A task
writes one file under a hidden name and returns the name. The driver renames only returned files, so
a file of a dead or late attempt never belongs to the run. The Parquet types are those of Spark's
own writer.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.limits import MIB
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.pipelines.task_rows import run_tasks
from tidelog.spark.planning import OffsetRange
from tidelog.spark.splitting import split_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Bytes of rows in one row group, before compression; a task holds one group in memory.
ROW_GROUP_BYTES: Final = 64 * MIB
_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"


class TargetError(TidelogError):
    """A folder that a task cannot write to."""


@dataclass(frozen=True, slots=True)
class _FileJob:
    """The task to write one file: the offsets to read, and the path to write."""

    options: ReadOptions
    wanted: OffsetRange
    folder: str
    #: Spark's setting for timestamps in Parquet: INT96, TIMESTAMP_MICROS or TIMESTAMP_MILLIS.
    timestamps: str


def write_files(
    spark: SparkSession,
    bootstrap: str,
    ranges: Sequence[OffsetRange],
    folder: Path,
    *,
    columns: Sequence[str],
    rows_per_file: int,
) -> None:
    """Write the records of `ranges` into an existing `folder`, one file for each task with rows.

    Raises TaskFailedError, ConfigError (executors without this package), or Spark's errors.
    """
    options = parse_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.client.id": "tidelog-ingest",
            "assign": json.dumps({ranges[0].tp.topic: [each.tp.partition for each in ranges]}),
            "columns": ",".join(columns),
        }
    )
    offsets = sum(each.size for each in ranges)
    tasks = split_ranges(ranges, max(1, -(-offsets // rows_per_file)))
    timestamps = str(spark.conf.get(_TIMESTAMPS))
    jobs = [_FileJob(options, each, str(folder), timestamps) for each in tasks]
    written = [row["file"] for row in run_tasks(spark, jobs, _write_file)]
    for number, name in enumerate(written):
        os.rename(folder / name, folder / f"part-{number:05}.parquet")
    for left in folder.glob(".attempt-*"):
        left.unlink()


def _write_file(job: _FileJob) -> Iterator[dict[str, Any]]:
    """Write one file in a task and yield its name, if there are rows. Raises TargetError."""
    from tidelog.spark.reading import read_range

    name = f".attempt-{uuid.uuid4().hex}"
    path = Path(job.folder) / name
    try:
        rows = _write(path, read_range(job.options, job.wanted), job)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise TargetError(
            f"{job.folder} cannot be written by a task: {error.strerror or error}. The executors"
            " must see the table's path; give file systems of Hadoop their scheme, such as hdfs://"
        ) from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if rows:
        yield {"file": name}


def _write(path: Path, batches: Iterator[pa.RecordBatch], job: _FileJob) -> int:
    """Write row groups of about ROW_GROUP_BYTES; return the number of rows."""
    import pyarrow as pa
    from pyarrow import parquet

    from tidelog.spark.columns import arrow_schema

    schema = arrow_schema(job.options.columns)
    rows = held_bytes = 0
    held: list[pa.RecordBatch] = []
    writer = None
    try:
        for batch in batches:
            held.append(batch)
            held_bytes += batch.nbytes
            rows += batch.num_rows
            if held_bytes >= ROW_GROUP_BYTES:
                writer = writer or parquet.ParquetWriter(path, schema, **_format(job))
                writer.write_table(pa.Table.from_batches(held, schema))
                held, held_bytes = [], 0
        if held:
            writer = writer or parquet.ParquetWriter(path, schema, **_format(job))
            writer.write_table(pa.Table.from_batches(held, schema))
    finally:
        if writer is not None:
            writer.close()
    return rows


def _format(job: _FileJob) -> dict[str, Any]:
    """Return Arrow's settings for files of Spark's format."""
    settings: dict[str, Any] = {
        "compression": "zstd",
        "store_schema": False,
        # A Parquet dictionary of offsets is useless, because no offset repeats.
        "use_dictionary": [name for name in job.options.columns if name != "offset"],
    }
    if job.timestamps == "INT96":
        settings["use_deprecated_int96_timestamps"] = True
    elif job.timestamps == "TIMESTAMP_MILLIS":
        settings["coerce_timestamps"] = "ms"
        settings["allow_truncated_timestamps"] = True
    return settings
