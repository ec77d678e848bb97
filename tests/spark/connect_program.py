"""A program: reads, writes and streams through a Spark Connect server of its own.

    connect_program.py SOURCE TARGET SCRATCH

This Python has no Java beside it: the server has, and runs the source and the sink. What each part
found, or its error, goes to SCRATCH/found.json.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.jvm import find_jvm
from tidelog.spark.pipelines.ingest import ingest, read_landed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 500


class Program:
    """The parts, each of which returns what the test looks at."""

    def __init__(self, spark: SparkSession, source: str, target: str, scratch: Path) -> None:
        self._spark = spark
        self._source = {"kafka.bootstrap.servers": source, "subscribe": "t"}
        self._target = {"kafka.bootstrap.servers": target, "topic": "written"}
        self._scratch = scratch

    def read(self) -> Any:
        frame = self._spark.read.format("tidelog").options(**self._source).load()
        return self._rows(frame.where("offset >= 10"))

    def wrong_option(self) -> Any:
        return self._spark.read.format("tidelog").options(**self._source, nope="1").load().count()

    def write(self) -> None:
        frame = self._spark.range(0, ROWS, 1, 2).selectExpr(
            "cast(id as string) as key", "concat('v', id) as value"
        )
        frame.write.format("tidelog").mode("append").options(**self._target).save()

    def stream(self) -> Any:
        landed = str(self._scratch / "landed")
        writer = self._streamed().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._scratch / "files"))
        writer.trigger(availableNow=True).start(landed).awaitTermination()
        return self._rows(self._spark.read.parquet(landed))

    def write_stream(self) -> None:
        writer = self._streamed().select("key", "value").writeStream.format("tidelog")
        writer = writer.options(**self._target)
        writer = writer.option("checkpointLocation", str(self._scratch / "topic"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def ingest(self) -> Any:
        seen: list[int] = []
        report = ingest(
            self._spark,
            self._source["kafka.bootstrap.servers"],
            "t",
            str(self._scratch / "table"),
            progress=lambda done, total: seen.append(done),
        )
        landed = read_landed(self._spark, str(self._scratch / "table"))
        return [report.proof.holds, report.proof.rows, landed.count()]

    def _streamed(self) -> DataFrame:
        reader = self._spark.readStream.format("tidelog").options(**self._source)
        return reader.option("startingOffsets", "earliest").load()

    def _rows(self, frame: DataFrame) -> list[Any]:
        rows = frame.selectExpr("partition", "offset", "cast(value as string) as v").collect()
        return sorted([row.partition, row.offset, row.v] for row in rows)


def main(source: str, target: str, scratch: str) -> None:
    os.environ["JAVA_HOME"] = find_jvm().java_home
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    program = Program(spark, source, target, Path(scratch))
    parts: dict[str, Callable[[], Any]] = {
        "read": program.read,
        "wrong_option": program.wrong_option,
        "write": program.write,
        "stream": program.stream,
        "write_stream": program.write_stream,
        "ingest": program.ingest,
    }
    found: dict[str, Any] = {"session": type(spark).__module__}
    for name, part in parts.items():
        try:
            found[name] = part()
        except Exception as error:  # shown by the test
            found[name] = {"error": str(error)}
    Path(scratch, "found.json").write_text(json.dumps(found), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
