"""A program: one checkpoint that moves between Spark's Kafka connector and ours; what came of it.

    moved_checkpoint.py BOOTSTRAP JARS SCRATCH TOPIC

It has a session of its own, since Java gets the connector's jars when it starts. Each query writes
every batch to a directory of its number, so a repeated batch replaces itself. `found.json` has, for
each journey, all values in the end and who planned which batch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Batches of a leg that stops in mid-stream.
LEG_BATCHES = 2


class Journey:
    """One checkpoint, and the directory that its queries write."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, scratch: Path) -> None:
        self._spark = spark
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "500",
        }
        self._checkpoint = scratch / "checkpoint"
        self._to = scratch / "landed"
        self.planned: list[tuple[str, int]] = []

    def go_on(self, connector: str, batches: int | None = None) -> None:
        """Run until the end of the topic, or until so many batches are complete."""
        done: list[int] = []

        def write(frame: DataFrame, number: int) -> None:
            if batches is None or len(done) < batches:
                frame.write.mode("overwrite").parquet(str(self._to / f"batch={number}"))
            else:
                raise StopHere(f"batch {number} stays planned")
            done.append(number)

        query = (
            self._spark.readStream.format(connector)
            .options(**self._options)
            .load()
            .selectExpr("cast(substring(cast(value as string), 2) as int) as v")
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        self._end(query, batches)
        self.planned += [(connector, number) for number in done]

    def _end(self, query: StreamingQuery, batches: int | None) -> None:
        try:
            query.awaitTermination()
        except Exception as error:
            if batches is None or StopHere.__name__ not in str(error):
                raise

    def found(self) -> dict[str, Any]:
        rows = self._spark.read.parquet(str(self._to)).select("v").collect()
        offsets = sorted((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda it: int(it.name))
        commits = sorted((self._checkpoint / "commits").glob("[0-9]*"), key=lambda it: int(it.name))
        return {
            "values": sorted(row.v for row in rows),
            "planned": self.planned,
            "last": json.loads(offsets[-1].read_text().splitlines()[-1]),
            "complete": offsets[-1].name == commits[-1].name,
        }


class StopHere(Exception):
    """Ends a query with a batch that is planned and not complete."""


def main(bootstrap: str, jars: str, scratch: str, topic: str) -> None:
    paths = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    spark = start_session(
        "moved-checkpoint",
        quick=True,
        log_path=f"{scratch}/jvm.log",
        conf={"spark.jars": paths},
    )
    found: dict[str, Any] = {}
    try:
        for first, second in (("kafka", "tidelog"), ("tidelog", "kafka")):
            journey = Journey(spark, bootstrap, topic, Path(scratch, f"{first}-first"))
            try:
                journey.go_on(first, LEG_BATCHES)
                journey.go_on(second, LEG_BATCHES)
                journey.go_on(first)
                found[first] = journey.found()
            except Exception as error:  # reported by the test of this journey
                found[first] = {"error": str(error)[:4000]}
    finally:
        stop_session(spark)
    Path(scratch, "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
