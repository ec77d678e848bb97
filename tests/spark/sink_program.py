"""A program: writes a stream, then a batch, with batch headers, and counts what readers see.

    sink_program.py BOOTSTRAP SCRATCH

A session of its own, which a test kills, or whose executors it kills. Tasks are tried up to four
times. The stream reads the text files in SCRATCH/in, one a batch. Before the batch write it writes
"stream done" and waits for a line. The counts go to SCRATCH/found.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.killing import LOCAL_CLUSTER

from tidelog.spark.deduplication import drop_repeated_batches
from tidelog.spark.session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 60_000
#: Small batches, so that a write has many requests; a response that is lost is missed soon.
OPTIONS = {
    "kafka.batch.size": "20000",
    "kafka.buffer.memory": "100000",
    "kafka.request.timeout.ms": "3000",
    "tidelog.batch.headers": "true",
}


def stream(spark: SparkSession, bootstrap: str, scratch: Path) -> None:
    query = (
        spark.readStream.option("maxFilesPerTrigger", "1")
        .text(str(scratch / "in"))
        .repartition(3)
        .selectExpr("value as key", "rpad(value, 100, '.') as value")
        .writeStream.format("tidelog")
        .options(**OPTIONS)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.client.id", "stream")
        .option("topic", "streamed")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def batch(spark: SparkSession, bootstrap: str) -> None:
    (
        spark.range(0, ROWS, 1, 2)
        .selectExpr("cast(id as string) as key", "rpad(cast(id as string), 100, '.') as value")
        .write.format("tidelog")
        .mode("append")
        .options(**OPTIONS)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.client.id", "batch")
        .option("topic", "written")
        .save()
    )


def counts(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, Any]:
    frame = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    once = drop_repeated_batches(frame)
    (row,) = once.selectExpr("count(*) as rows", "count(distinct key) as keys").collect()
    return {"stored": frame.count(), "once": row.rows, "keys": row.keys}


def main(bootstrap: str, scratch: str) -> None:
    spark = start_session(
        "sink-program",
        quick=True,
        log_path=f"{scratch}/jvm.log",
        conf={**LOCAL_CLUSTER, "spark.sql.shuffle.partitions": "2"},
    )
    try:
        stream(spark, bootstrap, Path(scratch))
        sys.stdout.write("stream done\n")
        sys.stdout.flush()
        sys.stdin.readline()
        batch(spark, bootstrap)
        found = {topic: counts(spark, bootstrap, topic) for topic in ("streamed", "written")}
        Path(scratch, "found.json").write_text(json.dumps(found), encoding="utf-8")
    finally:
        stop_session(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
