"""Spark's connectors beside each other: ours and the official one, on the same broker, in turns.

`python -m bench spark --rounds N --mib M`. Reads of 100 B and 1 KiB values (to nothing, and to
Parquet, by Spark and by `pipeline ingest`), writes of both, and micro-batches (`spark_micro`). The
official connector reads with its defaults, and tuned: 5,000 records a poll, 8 MiB a partition. It
comes as Maven's jars, as in tests/spark; where they are not to be had, one line says so and ours is
measured alone. CPU seconds are those of the JVM and its Python workers. The broker shares the
machine.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import spark_micro
from bench.rig import MIB, cpu_seconds, spread, table
from bench.spark_micro import MicroScene
from bench.spark_rig import CONNECTOR, CORES, HEAP, fill_topic, session, timed
from tidelog.local.cluster import LocalCluster
from tidelog.runtime.blocking import BlockingClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
VALUE_BYTES = (100, 1024)
OURS, DEFAULTS, TUNED, LIBRDKAFKA = "tidelog", "official", "official, tuned", "librdkafka"
INGEST = "tidelog, ingest"
_TUNING = {
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(8 * MIB),
}
#: Of the bytes of a read: writes of small records cost several times as much.
_WRITE_SHARES = {100: 4, 1024: 1}
_AUDIT = "audit"
#: Rounds that are not counted: the JVM compiles what it runs.
_WARM_UP_ROUNDS = 1


@dataclass
class _Variant:
    """One way to do a case, with what its runs measured."""

    name: str
    run: Callable[[], object]
    rows_per_s: list[float] = field(default_factory=list)
    cpu_s_per_million: list[float] = field(default_factory=list)
    broker_cpu_s_per_million: list[float] = field(default_factory=list)


@dataclass
class _Case:
    """Something to do with so many rows; `against` names what ours is compared with."""

    title: str
    rows: int
    against: str
    variants: list[_Variant]
    prepare: Callable[[], None]


@dataclass(frozen=True)
class _Scene:
    """The session, the broker, and a directory for files."""

    spark: SparkSession
    cluster: LocalCluster
    scratch: Path

    @property
    def servers(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.cluster.bootstrap}

    def broker_cpu_s(self) -> float:
        """CPU time of the broker so far."""
        processes = [self.cluster.process(number) for number in self.cluster.broker_ids]
        return cpu_seconds([process.pid for process in processes if process is not None])

    def fill(self, topic: str, partitions: int, rows: int, value_bytes: int) -> None:
        """Make a topic with so many records, unless it is there."""
        with BlockingClient(self.cluster.bootstrap, "bench") as client:
            if topic not in client.metadata().topics:
                fill_topic(client, topic, partitions, rows, value_bytes)

    def frame(self, kind: str, topic: str) -> DataFrame:
        reader = self.spark.read.format("tidelog" if kind == OURS else "kafka")
        tuning = _TUNING if kind == TUNED else {}
        return reader.options(**self.servers, subscribe=topic, **tuning).load()

    def read(self, kind: str, topic: str) -> None:
        self.frame(kind, topic).write.format("noop").mode("overwrite").save()

    def to_parquet(self, kind: str, topic: str) -> None:
        path = str(self.scratch / "parquet")
        written = self.frame(kind, topic).write.option("compression", "zstd")
        written.mode("overwrite").parquet(path)

    def ingest(self, topic: str) -> None:
        """Read a topic into a table, with the proof of `pipeline ingest`."""
        from tidelog.spark.pipelines.ingest import ingest

        with tempfile.TemporaryDirectory(dir=self.scratch) as directory:
            ingest(self.spark, self.cluster.bootstrap, topic, directory)

    def rows_to_write(self, rows: int, value_bytes: int) -> DataFrame:
        """Rows that cost little to make, each with bytes of its own."""
        return self.spark.range(0, rows, 1, CORES).selectExpr(
            "lpad(cast(id as string), 16, '0') as key",
            f"rpad(cast(id * 7919 as string), {value_bytes}, 'tidelog ') as value",
        )

    def write(self, kind: str, topic: str, rows: int, value_bytes: int) -> None:
        frame = self.rows_to_write(rows, value_bytes)
        if kind == LIBRDKAFKA:
            produce = partial(_produce_with_librdkafka, self.cluster.bootstrap, topic)
            frame.mapInArrow(produce, "done long").collect()
            return
        written = frame.write.format("tidelog" if kind == OURS else "kafka").mode("append")
        written.options(**self.servers, topic=topic).save()


def run(rounds: int, run_bytes: int, wanted: str) -> Iterator[str]:
    """Measure the cases whose title has the text `wanted`; yield a Markdown table of each."""
    jars = _jars()
    official = [DEFAULTS, TUNED] if jars is not None else []
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory, ExitStack() as stack:
        cluster = LocalCluster(f"{directory}/cluster", 1)
        stack.callback(cluster.down)
        cluster.up()
        spark = stack.enter_context(session(jars, f"{directory}/jvm.log"))
        scene = _Scene(spark, cluster, Path(directory))
        for case in _cases(scene, run_bytes, official):
            if wanted in case.title:
                case.prepare()
                _measure(scene, case, rounds)
                yield _table(case, rounds)
        formats = {OURS: "tidelog", **dict.fromkeys(official[:1], "kafka")}
        micro = MicroScene(spark, cluster, scene.scratch, formats)
        yield from spark_micro.run(micro, rounds, wanted)
        if wanted in _AUDIT:
            yield _audit(scene, rounds, run_bytes)


def _cases(scene: _Scene, run_bytes: int, official: list[str]) -> Iterator[_Case]:
    """Yield all cases."""
    for size in VALUE_BYTES:
        topic, rows = f"read-{size}", run_bytes // size
        fill = partial(scene.fill, topic, PARTITIONS, rows, size)
        kinds = [OURS, *official]
        reads = [_Variant(kind, partial(scene.read, kind, topic)) for kind in kinds]
        yield _Case(f"read {_words(size)}", rows, TUNED, reads, fill)
        files = [_Variant(kind, partial(scene.to_parquet, kind, topic)) for kind in kinds]
        files.insert(1, _Variant(INGEST, partial(scene.ingest, topic)))
        yield _Case(f"read {_words(size)}, to Parquet", rows, TUNED, files, fill)
    for size in VALUE_BYTES:
        topic, rows = f"write-{size}", run_bytes // size // _WRITE_SHARES[size]
        fill = partial(scene.fill, topic, PARTITIONS, 0, size)
        kinds = [OURS, *official[:1], LIBRDKAFKA]
        writes = [_Variant(kind, partial(scene.write, kind, topic, rows, size)) for kind in kinds]
        yield _Case(f"write {_words(size)}", rows, DEFAULTS, writes, fill)


def _measure(scene: _Scene, case: _Case, rounds: int) -> None:
    millions = case.rows / 1e6
    for number in range(_WARM_UP_ROUNDS + rounds):
        for variant in case.variants:
            broker = scene.broker_cpu_s()
            seconds, cpu = timed(variant.run)
            if number >= _WARM_UP_ROUNDS:
                variant.rows_per_s.append(case.rows / seconds)
                variant.cpu_s_per_million.append(cpu / millions)
                spent = scene.broker_cpu_s() - broker
                variant.broker_cpu_s_per_million.append(spent / millions)


def _table(case: _Case, rounds: int) -> str:
    beside = [each for each in case.variants if each.name == case.against]
    rows = []
    for variant in case.variants:
        ratio = ""
        if variant.name in (OURS, INGEST) and beside:
            speed = statistics.median(variant.rows_per_s)
            ratio = f"{speed / statistics.median(beside[0].rows_per_s):.2f}"
        rows.append(
            (
                variant.name,
                spread([speed / 1000 for speed in variant.rows_per_s]),
                spread(variant.cpu_s_per_million, 2),
                spread(variant.broker_cpu_s_per_million, 2),
                ratio,
            )
        )
    title = f"Spark: {case.title} ({rounds} runs of {case.rows:,} rows, in turns)"
    head = (
        *("", "thousand rows/s", "Spark's CPU s per million", "the broker's CPU s per million"),
        f"of {case.against}",
    )
    return table(title, rows, head)


def _audit(scene: _Scene, rounds: int, run_bytes: int) -> str:
    """The rate at which `pipeline audit` reads log files that are in the page cache."""
    from tidelog.spark.pipelines.audit.reporting import audit

    size = VALUE_BYTES[-1]
    scene.fill(f"read-{size}", PARTITIONS, run_bytes // size, size)
    directories = list(scene.cluster.log_directories())
    logs = [path for each in directories for path in Path(each).rglob("*.log")]
    held = sum(path.stat().st_size for path in logs)
    rates, costs = [], []
    for number in range(_WARM_UP_ROUNDS + rounds):
        seconds, cpu = timed(partial(audit, scene.spark, directories))
        if number >= _WARM_UP_ROUNDS:
            rates.append(held / seconds / 1e9)
            costs.append(cpu / (held / 1e9))
    return table(
        f"Spark: {_AUDIT} of {held / MIB:,.0f} MiB of log ({rounds} runs)",
        [("tidelog", spread(rates, 2), spread(costs, 2))],
        ("", "GB/s", "Spark's CPU s per GB"),
    )


def _produce_with_librdkafka(bootstrap: str, topic: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Write rows in a task with confluent-kafka, idempotently, as a user would."""
    import confluent_kafka
    import pyarrow as pa

    from bench.rig import PRODUCER_OPTIONS

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            **PRODUCER_OPTIONS,
        }
    )
    done = 0
    for batch in batches:
        keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
        done += batch.num_rows
    if producer.flush(120):
        raise RuntimeError(f"records for {topic} were not acknowledged")
    yield pa.RecordBatch.from_pydict({"done": [done]})


def _words(size: int) -> str:
    return "1 KiB" if size == 1024 else f"{size} B"


def _jars() -> Path | None:
    """The official connector's jars where they can be had."""
    # Loaded here alone: it needs the tests' sources.
    from tests.support.clients.absent import Absent
    from tests.support.clients.jars import jars_of_spark

    try:
        found = jars_of_spark(CONNECTOR)
    except Absent as absent:
        print(f"Spark's Kafka connector is not measured beside: {absent}\n", flush=True)
        return None
    print(
        f"Spark local[{CORES}] with {HEAP} of heap, its Kafka connector {CONNECTOR},"
        f" {PARTITIONS} partitions on one broker of tidelog\n",
        flush=True,
    )
    return found
