"""Removal of repeated batches: exactly-once reads of topics written with batch headers.

Spark writes at least once: it runs a failed task again, and repeats a batch whose driver died. The
records of every attempt stay in the topic. Records written with `tidelog.batch.headers` carry a
header with batch, run (one execution of the batch), task and attempt (`sink.batch_marks`), by which
this module chooses the records to keep. For each task the module keeps the attempt that wrote all
rows of the task, or else the attempt with the most rows. If a batch ran several times, the module
keeps the run whose kept task attempts wrote the most rows. If two attempts (or runs) have equally
many rows, their rows are the same, and the module keeps the attempt (or run) with the greater id.

All records of a run are kept or dropped together, so a repeated batch may have its rows in other
tasks, or in another order. A repeated batch must have as many rows as before; Spark requires this
of every source that can be replayed. Records without the header `tidelog.batch` are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.core.errors import ConfigError
from tidelog.spark.sink.batch_marks import HEADER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HEADERS: Final = "headers"
#: Columns that `with_batch_columns` adds, one for each part of the header `tidelog.batch`.
BATCH_COLUMNS: Final = {
    "batch_write_id": "string",
    "batch_id": "string",
    "batch_run": "string",
    "batch_task": "int",
    "batch_attempt": "bigint",
    "batch_row": "bigint",
    "batch_is_last": "int",
}
_ATTEMPT: Final = list(BATCH_COLUMNS)[:5]
_TASK: Final = _ATTEMPT[:4]
_RUN: Final = _ATTEMPT[:3]
_BATCH: Final = _ATTEMPT[:2]


def with_batch_columns(df: DataFrame) -> DataFrame:
    """Return `df` with the parts of the header `tidelog.batch` as columns, null if it is missing.

    If a record has the header several times, the last header counts. Raises ConfigError without a
    column `headers`.
    """
    from pyspark.sql import functions as sql

    if _HEADERS not in df.columns:
        raise ConfigError(
            f"there is no column {_HEADERS} among {', '.join(df.columns)}: read the topic with the"
            " option includeHeaders=true, and keep the column"
        )

    def is_mark(header: Column) -> Column:
        return header["key"] == HEADER

    marks = sql.reverse(sql.filter(sql.col(_HEADERS), is_mark))
    parts = sql.split(sql.get(marks, sql.lit(0))["value"].cast("string"), "/")
    columns = {
        name: sql.get(parts, sql.lit(place)).try_cast(kind)
        for place, (name, kind) in enumerate(BATCH_COLUMNS.items())
    }
    return df.withColumns(columns)


def drop_repeated_batches(df: DataFrame) -> DataFrame:
    """Return the rows of `df` without rows that repeat a batch or a part of a batch.

    `df` is a batch DataFrame with the column `headers`, read from the topic or from a copy of its
    rows. The function reads the rows of `df` twice. Raises ConfigError for a streaming DataFrame.
    """
    from pyspark.sql import functions as sql

    if df.isStreaming:
        raise ConfigError(
            "drop_repeated_batches needs all tries of a batch at once, and a stream has no end: use"
            " it on spark.read, or drop repeated rows of with_batch_columns(df) by dropDuplicates"
            " on batch_write_id, batch_id, batch_task, batch_row"
        )
    marked = with_batch_columns(df)
    dropped = sql.broadcast(_dropped_attempts(marked))
    return marked.join(dropped, _ATTEMPT, "left_anti").select(df.columns)


def _dropped_attempts(marked: DataFrame) -> DataFrame:
    """Return the task attempts whose records are dropped in favour of another attempt or run."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    rows, last = sql.col("rows"), sql.col("last_row")
    attempts = (
        marked.where("batch_write_id is not null")
        .groupBy(_ATTEMPT)
        .agg(
            sql.count("*").alias("rows"),
            sql.max(sql.when(sql.col("batch_is_last") == 1, sql.col("batch_row"))).alias(
                "last_row"
            ),
        )
        .withColumn("is_whole", sql.coalesce(rows == last + 1, sql.lit(False)))
    )
    best_first = Window.partitionBy(_TASK).orderBy(
        sql.desc("is_whole"), sql.desc("rows"), sql.desc("batch_attempt")
    )
    largest_first = Window.partitionBy(_BATCH).orderBy(sql.desc("run_rows"), sql.desc("batch_run"))
    chosen = sql.col("place") == 1
    return (
        attempts.withColumn("place", sql.row_number().over(best_first))
        .withColumn("run_rows", sql.sum(sql.when(chosen, rows)).over(Window.partitionBy(_RUN)))
        .withColumn("run_place", sql.dense_rank().over(largest_first))
        .where(~chosen | (sql.col("run_place") > 1))
        .select(_ATTEMPT)
    )
