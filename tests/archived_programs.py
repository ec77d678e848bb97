"""Programs whose classes the tests archive: Spark jobs, a ZooKeeper server, a broker of Kafka's.

`python -m tests.archived_programs` runs each program whose archive is missing, and Java
writes the archive when the program ends (`tests.support.class_archives`). It prints what it made,
and why it left an archive out.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.class_archives import (
    BROKER,
    QUICK,
    SILENT,
    SPARK,
    ZOOKEEPER,
    ZOOKEEPER_VARIABLE,
    path_of,
)
from tests.support.client.fake_logs import FakeLogs, batch
from tests.support.clients.absent import Absent
from tests.support.clients.jars import CACHE, KAFKA, jars_of_kafka
from tests.support.cluster.broker_processes import KafkaBroker
from tests.support.cluster.values import read_values, write_values
from tests.support.cluster.zookeepers import start_server

from tidelog.core.types import TopicPartition
from tidelog.local.ports import free_ports
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.ingest import ingest, read_landed
from tidelog.spark.session import start_session, stop_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Java writes the archive when it ends, which takes it some seconds.
_END_S = 300.0
_RECORDS = 100


def run_spark(options: tuple[str, ...], scratch: Path) -> None:
    """Run the kinds of jobs that tests of Spark run: an ingest with its proof, and a stream."""
    logs = FakeLogs()
    logs.create("t", 1)
    logs.append(TopicPartition("t", 0), batch(0, *(b"%d" % each for each in range(_RECORDS))))
    java = " ".join((*QUICK, *options))
    spark = start_session(
        "archived", log_path=f"{scratch}.log", conf={"spark.driver.extraJavaOptions": java}
    )
    table = f"{scratch}.table"
    assert ingest(spark, logs.bootstrap, "t", table).proof.holds
    rows = read_landed(spark, table).groupBy("partition").count().orderBy("partition")
    assert [row["count"] for row in rows.collect()] == [_RECORDS]
    streamed = f"{scratch}.streamed"
    query = (
        read_stream(spark, logs.bootstrap)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{scratch}.checkpoint")
        .trigger(availableNow=True)
        .start(streamed)
    )
    query.awaitTermination()
    assert spark.read.parquet(streamed).count() == _RECORDS
    stop_session(spark, _END_S)
    logs.close()


def read_stream(spark: SparkSession, bootstrap: str) -> DataFrame:
    """A stream of the topic through a function of Arrow batches."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t"}
    reader = spark.readStream.format("tidelog").option("startingOffsets", "earliest")
    rows = reader.options(**options).load().selectExpr("cast(value as string) as v")
    return rows.mapInArrow(pass_on, "v string")


def run_zookeeper(options: tuple[str, ...], scratch: Path) -> None:
    """Start a server until it serves, and end it."""
    os.environ[ZOOKEEPER_VARIABLE] = " ".join((*QUICK, *options))
    try:
        server = start_server(scratch)
    finally:
        del os.environ[ZOOKEEPER_VARIABLE]
    server.stop(_END_S)


def run_broker(options: tuple[str, ...], scratch: Path) -> None:
    """Start a broker, create a topic, write to it, and shut the broker down."""
    server = start_server(scratch / "zookeeper")
    keys = {"offsets.topic.replication.factor": "1"}
    broker = KafkaBroker(scratch / "broker", 1, free_ports(1)[0], server.address, keys, options)
    try:
        broker.start()
        with BlockingClient(broker.address, timeout_ms=60_000) as client:
            client.create_topic("t", 1, 1, {})
        write_values(broker.address, TopicPartition("t", 0), [b"v"])
        assert read_values(broker.address, TopicPartition("t", 0)) == [b"v"]
        broker.stop(_END_S)
    finally:
        broker.kill()
        server.stop()


PROGRAMS: Mapping[str, Callable[[tuple[str, ...], Path], None]] = {
    ZOOKEEPER: run_zookeeper,
    BROKER: run_broker,
    SPARK: run_spark,
}


def make(name: str) -> str:
    """Make an archive unless it is there; return what came of it."""
    path = path_of(name)
    if path is None:
        return "left out: there is no Java, or there are no jars"
    if path.exists():
        return f"{path} is there"
    for outdated in CACHE.glob(f"classes-{name}-*.jsa"):
        outdated.unlink()
    with tempfile.TemporaryDirectory(prefix="classes-", dir=CACHE) as scratch:
        fresh = Path(scratch) / "fresh.jsa"
        try:
            PROGRAMS[name]((f"-XX:ArchiveClassesAtExit={fresh}", *SILENT), Path(scratch) / "run")
        except Exception:  # an archive saves time and proves nothing: its failure is no test's
            traceback.print_exc()
            return "left out: its program failed"
        if not fresh.exists():
            return "left out: Java made no archive"
        fresh.rename(path)
    return f"{path}: {path.stat().st_size >> 20} MiB"


def main() -> None:
    """Make all archives that are missing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        jars_of_kafka(KAFKA[0])
    except Absent as absent:
        sys.stdout.write(f"{BROKER}: {absent}\n")
    for name in PROGRAMS:
        sys.stdout.write(f"{name}: {make(name)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
