"""A program: a stream from a topic to Parquet files, made to be killed at chosen records.

    killed_stream.py BOOTSTRAP TOPIC SCRATCH RECORD,RECORD... [--to-the-end]

A task that comes to one of the records for the first time writes the record's number to `SCRATCH`
as the name of a file, and waits to be killed. With `--to-the-end` the query stops at the end of the
topic, and `found.json` has what the sink's committed files hold.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.killing import LOCAL_CLUSTER

from tidelog.spark.session import start_session, stop_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: A task that nothing kills goes on at last, so that no process stays.
_PATIENCE_S = 60


def stopping_at(
    records: set[int], scratch: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow that passes batches on, and waits at some records."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in records.intersection(batch.column("v").to_pylist()):
                marker = Path(scratch, f"at-{number}")
                if not marker.exists():
                    marker.touch()
                    time.sleep(_PATIENCE_S)  # to be killed here
            yield batch

    return pass_on


def run(
    spark: SparkSession, bootstrap: str, topic: str, scratch: str, records: set[int], to_end: bool
) -> None:
    """Stream until the end of the topic, or until the process is killed."""
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "700")
        .option("minPartitions", "3")
        .load()
        .selectExpr("cast(substring(cast(value as string), 2) as int) as v")
        .mapInArrow(stopping_at(records, scratch), "v int")
    )
    writer = rows.writeStream.format("parquet").option(
        "checkpointLocation", f"{scratch}/checkpoint"
    )
    if to_end:
        writer.trigger(availableNow=True).start(f"{scratch}/landed").awaitTermination()
    else:
        writer.trigger(processingTime="0 seconds").start(f"{scratch}/landed").awaitTermination()


def main(bootstrap: str, topic: str, scratch: str, records: str, *flags: str) -> None:
    to_end = "--to-the-end" in flags
    spark = start_session(
        "killed-stream",
        quick=True,
        log_path=f"{scratch}/jvm.log",
        conf=LOCAL_CLUSTER,
    )
    try:
        run(spark, bootstrap, topic, scratch, {int(each) for each in records.split(",")}, to_end)
        found = [row.v for row in spark.read.parquet(f"{scratch}/landed").collect()]
        Path(scratch, "found.json").write_text(json.dumps(sorted(found)), encoding="utf-8")
    finally:
        stop_session(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
