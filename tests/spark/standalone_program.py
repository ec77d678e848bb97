"""A program for `spark-submit`: reads, streams and writes on a cluster; what it saw as JSON.

    standalone_program.py SOURCE TARGET SCRATCH PART...

The parts are modules, read, stream, write, tasks and decoded. The program registers the source:
Spark looks in shipped files for no source by its name. SCRATCH is on a disk that the executors
share with the driver, for the checkpoint and the files of the stream.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tidelog.spark.pipelines.task_rows import run_tasks
from tidelog.spark.schemas.decoded_column import decoded_column
from tidelog.spark.source import TidelogDataSource

ROWS = 2_000
COLUMNS = ("cast(value as string) as v", "partition", "offset")


def read(spark: SparkSession, options: dict[str, str]) -> Any:
    frame = spark.read.format("tidelog").options(**options, subscribe="read").load()
    return sorted(
        [row.partition, row.offset, row.v] for row in frame.selectExpr(*COLUMNS).collect()
    )


def stream(spark: SparkSession, options: dict[str, str], scratch: Path) -> Any:
    query = (
        spark.readStream.format("tidelog")
        .options(
            **options, subscribe="read", startingOffsets="earliest", maxOffsetsPerTrigger="130"
        )
        .load()
        .selectExpr(*COLUMNS)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(scratch / "landed"))
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(scratch / "landed")).collect()
    return sorted([row.partition, row.offset, row.v] for row in rows)


def write(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.range(0, ROWS, 1, 4).selectExpr(
        "cast(id as string) as key", "concat('v', id) as value"
    )
    frame.write.format("tidelog").mode("append").options(**options, topic="written").save()


def tasks(spark: SparkSession) -> Any:
    """Rows of a pipeline's tasks."""
    return run_tasks(spark, [2, 3], squared)


class Lengths:
    """A decoder of records as their lengths."""

    arrow_type = pa.int64()

    def decode(self, data: bytes) -> int:
        return len(data)


def squared(number: int) -> list[dict[str, Any]]:
    return [{"square": number * number}]


def decoded(spark: SparkSession) -> Any:
    """Lengths of values, by a column that a decoder of records makes."""
    frame = spark.range(2).selectExpr("cast(repeat('x', cast(id as int)) as binary) as value")
    column = decoded_column("value", Lengths(), "FAILFAST")
    return sorted(row.n for row in frame.select(column.alias("n")).collect())


def modules(spark: SparkSession) -> Any:
    """Where each executor has tidelog from, and whether it is compiled there."""

    def look(_: Any) -> list[Any]:
        import os

        import tidelog
        from tidelog.spark.rows import is_compiled

        return [os.path.abspath(tidelog.__file__), is_compiled()]

    return spark.sparkContext.range(0, 2, 1, 2).map(look).collect()


def main(source: str, target: str, scratch: str, *names: str) -> None:
    spark = SparkSession.builder.appName("standalone-program").getOrCreate()
    spark.dataSource.register(TidelogDataSource)
    read_from = {"kafka.bootstrap.servers": source}
    parts: dict[str, Callable[[], Any]] = {
        "modules": lambda: modules(spark),
        "read": lambda: read(spark, read_from),
        "stream": lambda: stream(spark, read_from, Path(scratch)),
        "tasks": lambda: tasks(spark),
        "decoded": lambda: decoded(spark),
        "write": lambda: write(spark, {"kafka.bootstrap.servers": target}),
    }
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = parts[name]()
        except Exception as error:  # shown by the test of this part
            found[name] = {"error": str(error)}
    spark.stop()
    Path(scratch, "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
