"""A program: reads, writes and ingests through a server of Sail, with the package pyspark-client.

    sail_program.py SOURCE TARGET SCRATCH

It has no py4j, as that package brings none. What each part found, or its error, goes to
SCRATCH/found.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.pipelines.compact import compact
from tidelog.spark.pipelines.ingest import follow, ingest, prove_table, read_landed
from tidelog.spark.pipelines.landing import LandingOptions
from tidelog.spark.pipelines.parsing import json_columns
from tidelog.spark.schemas.avro_column import avro_column
from tidelog.spark.schemas.json_column import json_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 500
TEXT = '"string"'


class Program:
    """The parts, each of which returns what the test looks at."""

    def __init__(self, spark: SparkSession, source: str, target: str, scratch: Path) -> None:
        self._spark = spark
        self._servers = source
        self._source = {"kafka.bootstrap.servers": source, "subscribe": "t"}
        self._target = {"kafka.bootstrap.servers": target, "topic": "written"}
        self._scratch = scratch

    def read(self) -> Any:
        """All columns; times come in UTC whatever this machine's zone is."""
        frame = self._load(includeHeaders="true").where("partition = 1 and offset >= 3")
        types = [field.dataType.simpleString() for field in frame.schema.fields]
        texts = frame.selectExpr(
            "cast(key as string) as key", "cast(value as string) as value", "topic", "offset",
            "unix_millis(timestamp) as at", "timestampType",
            "headers[0].key as name", "cast(headers[0].value as string) as text",
        )  # fmt: skip
        return [types, sorted(tuple(row) for row in texts.collect())]

    def pushdown(self) -> Any:
        """Rows by filters that planning takes, of which the test counts the fetches."""
        return self._load().where("offset >= 38 and timestamp >= '2023-11-14 22:13:20'").count()

    def columns(self) -> Any:
        return self._load(columns="offset", minPartitions="5").distinct().count()

    def wrong_option(self) -> Any:
        return self._load(nope="1").count()

    def unknown_topic(self) -> Any:
        return self._load(subscribe="nope").count()

    def write(self) -> None:
        frame = self._spark.range(0, ROWS, 1, 2).selectExpr(
            "cast(id as string) as key", "concat('v', id) as value"
        )
        frame.write.format("tidelog").mode("append").options(**self._target).save()

    def marked_write(self) -> None:
        writer = self._spark.sql("select 'v' as value").write.format("tidelog").mode("append")
        writer.options(**self._target, **{"tidelog.batch.headers": "true"}).save()

    def stream(self) -> None:
        reader = self._spark.readStream.format("tidelog").options(**self._source)
        writer = reader.load().select("value").writeStream.format("tidelog")
        writer = writer.options(**self._target, checkpointLocation=str(self._scratch / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def stream_to_files(self) -> None:
        reader = self._spark.readStream.format("tidelog").options(**self._source)
        writer = reader.load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._scratch / "f"))
        writer.start(str(self._scratch / "files")).awaitTermination()

    def avro(self) -> Any:
        column = avro_column("value", None, schema=TEXT)
        frame = self._load().where("partition = 0 and offset < 2").select(column.alias("v"))
        return sorted(row.v.error or row.v.record for row in frame.collect())

    def json(self) -> Any:
        return self._load().select(json_column("value", "n int")).collect()

    def json_ingest(self) -> Any:
        parse = json_columns(self._spark, "n int")
        return self._ingest("json", transform=parse).proof.rows

    def ingest(self) -> Any:
        """Two tables: of records, and of a transform; three batches, proved, merged and read."""
        stop = threading.Event()
        options = LandingOptions(include_headers=True)
        batches = follow(
            self._spark, self._servers, "t", self._place("table"), stop=stop, options=options,
            offsets_per_batch=40, on_batch=lambda report: stop.set() if _is_all(report) else None,
        )  # fmt: skip
        before = prove_table(self._spark, self._place("table"))
        merged = compact(self._spark, self._place("table"))
        after = prove_table(self._spark, self._place("table"))
        doubled = self._ingest("doubled", transform=_lengths)
        landed = read_landed(self._spark, self._place("table"))
        first = read_landed(self._spark, self._place("table"), version=1)
        return [
            batches, before.holds, len(merged.before), len(merged.after), after.holds,
            doubled.proof.holds, landed.count(), first.count(),
            landed.where("headers[0].key = 'h'").count(),
            read_landed(self._spark, self._place("doubled")).selectExpr("sum(n)").collect()[0][0],
        ]  # fmt: skip

    def killed_server(self) -> Any:
        """A server that dies under an ingest; the next ingest, on another server, lands all."""
        server, port = started()
        other = session(port)
        other.client.set_retry_policies([])

        def kill(frame: DataFrame) -> DataFrame:
            server.kill()
            server.wait()
            return frame

        place = self._place("killed")
        try:
            ingest(other, self._servers, "t", place, transform=kill)
        except Exception as error:  # the client's, whose class is not part of its interface
            failed = type(error).__module__
        report = self._ingest("killed")
        return [failed.partition(".")[0], report.proof.holds, report.proof.rows]

    def _ingest(self, name: str, **options: Any) -> Any:
        return ingest(self._spark, self._servers, "t", self._place(name), **options)

    def _place(self, name: str) -> str:
        return str(self._scratch / name)

    def _load(self, **options: str) -> DataFrame:
        return self._spark.read.format("tidelog").options(**{**self._source, **options}).load()


def _is_all(report: Any) -> bool:
    return all(each.wanted.end == 40 for each in report.proof.partitions)


def _lengths(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("topic", "partition", "offset", "timestamp", "length(value) as n")


def started() -> tuple[subprocess.Popen[str], str]:
    """A server of Sail, and its port."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("sail_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


def session(port: str) -> Any:
    from pyspark.sql.connect.session import SparkSession

    return SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()


def main(source: str, target: str, scratch: str) -> None:
    modules: dict[str, Any] = sys.modules
    modules["py4j"] = None
    server, port = started()
    spark = session(port)
    program = Program(spark, source, target, Path(scratch))
    found: dict[str, Any] = {}
    for name in (
        "read", "pushdown", "columns", "wrong_option", "unknown_topic", "write", "marked_write",
        "stream", "stream_to_files", "avro", "json", "json_ingest", "ingest", "killed_server",
    ):  # fmt: skip
        part: Callable[[], Any] = getattr(program, name)
        try:
            found[name] = part()
        except Exception as error:  # shown by the test
            found[name] = {"error": str(error)}
    Path(scratch, "found.json").write_text(json.dumps(found), encoding="utf-8")
    spark.stop()  # a client whose server is gone waits for it for minutes
    server.kill()
    server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
