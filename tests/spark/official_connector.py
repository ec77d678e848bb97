"""A program: Spark's own Kafka connector, unmodified, against brokers; what it saw as JSON.

    official_connector.py BOOTSTRAP JARS SCRATCH PATTERNS

It has a session of its own, since jars are told to Java when it starts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "substring(cast(value as string), 2) as v",
    "partition",
    "offset",
    "timestampType",
    "headers",
)


def batch(spark: SparkSession, options: dict[str, str]) -> Any:
    """Everything of the topic, and a range of one partition."""
    reader = spark.read.format("kafka").options(**options)
    rows = reader.option("includeHeaders", "true").load().selectExpr(*COLUMNS).collect()
    ranges = {
        "startingOffsets": json.dumps({options["subscribe"]: {"0": 10, "1": 0}}),
        "endingOffsets": json.dumps({options["subscribe"]: {"0": 20, "1": 0}}),
    }
    part = spark.read.format("kafka").options(**options, **ranges).load()
    return {
        "values": sorted(int(row.v) for row in rows),
        "partitions": sorted({row.partition for row in rows}),
        "headers": sorted({header.value.decode() for row in rows for header in row.headers}),
        "range": sorted(row.offset for row in part.select("offset").collect()),
    }


def stream(spark: SparkSession, options: dict[str, str], scratch: Path) -> Any:
    """Two runs over the same checkpoint, several triggers each: nothing twice, nothing missing."""
    to = str(scratch / "landed")
    query = (
        spark.readStream.format("kafka")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="700")
        .load()
        .selectExpr("substring(cast(value as string), 2) as v")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
    )
    batches = 0
    for _ in range(2):
        running = query.start(to)
        running.awaitTermination()
        batches = max(batches, len(running.recentProgress))
    return {
        "values": sorted(int(row.v) for row in spark.read.parquet(to).collect()),
        "batches": batches,
    }


def sink(spark: SparkSession, options: dict[str, str], topic: str, compression: str) -> Any:
    """Records written by the connector, as a batch."""
    frame: DataFrame = spark.range(0, 1000, 1, 4).selectExpr(
        "cast(id as string) as key", "cast(id * 2 as string) as value"
    )
    written = frame.write.format("kafka").option("topic", topic)
    servers = options["kafka.bootstrap.servers"]
    written.option("kafka.bootstrap.servers", servers).option(
        "kafka.compression.type", compression
    ).save()
    back = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    rows = spark.read.format("kafka").options(**back).load()
    found = rows.selectExpr("cast(key as string) as k", "cast(value as string) as v").collect()
    return {"pairs": sorted((int(row.k), int(row.v)) for row in found)}


def patterns(spark: SparkSession, bootstrap: str, asked: Sequence[str]) -> Any:
    """The topics of each pattern, as the connector finds them and as tidelog's source does."""
    found: dict[str, dict[str, list[str]]] = {}
    for pattern in asked:
        for connector in ("kafka", "tidelog"):
            reader = spark.read.format(connector).option("kafka.bootstrap.servers", bootstrap)
            rows = reader.option("subscribePattern", pattern).load().select("topic").distinct()
            found.setdefault(pattern, {})[connector] = sorted(row.topic for row in rows.collect())
    return found


def main(bootstrap: str, jars: str, scratch: str, asked: str) -> None:
    paths = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    spark = start_session(
        "official-connector",
        quick=True,
        log_path=f"{scratch}/jvm.log",
        conf={"spark.jars": paths},
    )
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "official"}
    found: dict[str, Any] = {}
    try:
        parts: dict[str, Callable[[], Any]] = {
            "batch": lambda: batch(spark, options),
            "stream": lambda: stream(spark, options, Path(scratch)),
            "sink": lambda: sink(spark, options, "official-sink", "zstd"),
            "patterns": lambda: patterns(spark, bootstrap, json.loads(asked)),
        }
        for name, do in parts.items():
            try:
                found[name] = do()
            except Exception as error:  # told by the test of this part
                found[name] = {"error": str(error)[:4000]}
    finally:
        stop_session(spark)
    Path(scratch, "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
