"""Landing in lake tables: rows a second beside other ways, commits of old tables, a long follow.

`python -m bench lake --rounds N --mib M [--cases TEXT]`. A topic of one broker lands in Delta, in
Iceberg, and in Delta on an S3 server of loopback (moto, in Python: its share of the machine is a
real store's network). Beside them, in turns: Spark's official connector with Delta's jar, in a
session of the newest Spark that both fit, and one process that consumes with librdkafka and writes
by delta-rs, as kafka-delta-ingest does. Those prove nothing, and do not sync their files. CPU
seconds are those of the processes that land; the broker and the S3 server share the machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.rig import MIB, pss_bytes, spread, table
from bench.spark_rig import CORES, HEAP, KEPT, batch, cpu_of_tree, fill_topic, session, timed
from tidelog.core.types import TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.local.ports import free_ports
from tidelog.runtime.blocking import BlockingClient

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tidelog.spark.lake.table import Lake

PARTITIONS = 4
VALUE_BYTES = (100, 1024)
INGEST, COMMITS, FOLLOW = "ingest", "commits", "follow"
OURS, ICEBERG, STORE = "tidelog, to Delta", "tidelog, to Iceberg", "tidelog, to Delta on S3"
OFFICIAL, ONE_PROCESS = "official, Delta's jar", "librdkafka and delta-rs"
#: Versions of a table before the commits that are timed. Iceberg's metadata lists all snapshots.
#: The values are the commits that are timed: one to Iceberg reads all snapshots several times.
VERSIONS = {1: 20, 1_000: 20, 10_000: 5}
_BATCHES = 1_000
_RECORDS_PER_BATCH = 20
_POLL_RECORDS = 500_000
_WARM_UP_ROUNDS = 1
#: Connector, Delta's jar, and the version of Spark that both fit.
_PEER = ("4.2.0", "4.4.0", "4.2.0")


@dataclass
class _Way:
    """A way to land a topic; `run` returns seconds and CPU seconds."""

    name: str
    run: Callable[[str, str], tuple[float, float]]
    rows_per_s: list[float] = field(default_factory=list)
    cpu_s_per_million: list[float] = field(default_factory=list)


def run(rounds: int, run_bytes: int, wanted: str) -> Iterator[str]:
    """Measure the cases whose title has the text `wanted`; yield Markdown tables."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as scratch, ExitStack() as stack:
        if wanted in COMMITS:
            yield _commits(Path(scratch))
        if wanted not in INGEST and wanted not in FOLLOW:
            return  # commits need neither a broker nor Spark
        cluster = LocalCluster(f"{scratch}/cluster", 1)
        stack.callback(cluster.down)
        cluster.up()
        print(f"Spark local[{CORES}] with {HEAP} of heap, {PARTITIONS} partitions\n", flush=True)
        spark = stack.enter_context(session(None, f"{scratch}/jvm.log"))
        if wanted in INGEST:
            ways = list(_ways(stack, spark, cluster, Path(scratch)))
            for size in VALUE_BYTES:
                yield _ingests(cluster, ways, size, run_bytes, rounds, Path(scratch))
        if wanted in FOLLOW:
            yield _follow(spark, cluster, Path(scratch))


def _ways(
    stack: ExitStack, spark: SparkSession, cluster: LocalCluster, scratch: Path
) -> Iterator[_Way]:
    """Yield all ways that can be had here."""
    # Loaded here alone: they need the tests' sources.
    from tests.support.clients.absent import Absent
    from tests.support.s3_server import BUCKET, s3_server

    server = cluster.bootstrap
    yield _Way(OURS, partial(_ingest, spark, server, "{}", {}))
    yield _Way(ICEBERG, partial(_ingest, spark, server, "iceberg:bench.t", {"warehouse": "{}"}))
    [port] = free_ports(1)
    s3 = stack.enter_context(s3_server(port, scratch / "s3.log"))
    yield _Way(STORE, partial(_ingest, spark, server, f"s3://{BUCKET}{{}}", dict(s3.options)))
    try:
        yield _Way(OFFICIAL, stack.enter_context(_official(server)))
    except Absent as absent:
        print(f"the official connector is not measured beside: {absent}\n", flush=True)
    yield _Way(ONE_PROCESS, partial(_one_process, server))


def _ingest(
    spark: SparkSession,
    bootstrap: str,
    place: str,
    options: dict[str, str],
    topic: str,
    directory: str,
) -> tuple[float, float]:
    """Land a topic by `pipeline ingest`, with its proof."""
    from tidelog.spark.pipelines.ingest import ingest

    keys = {name: value.format(directory) for name, value in options.items()}
    land = partial(ingest, spark, bootstrap, topic, place.format(directory), storage_options=keys)
    driver = time.process_time()
    seconds, cpu = timed(land)
    return seconds, cpu + time.process_time() - driver


@contextmanager
def _official(bootstrap: str) -> Iterator[Callable[[str, str], tuple[float, float]]]:
    """Yield the official connector's way, whose session stays up."""
    from tests.support.clients.jars import jars_of_delta, jars_of_spark, pyspark

    connector, delta, version = _PEER
    jars = [*jars_of_spark(connector).glob("*.jar"), *jars_of_delta(delta).glob("*.jar")]
    older = pyspark(version)
    words = [sys.executable, str(Path(__file__).with_name("lake_peer.py"))]
    with subprocess.Popen(
        [*words, ",".join(map(str, sorted(jars))), bootstrap],
        env={**os.environ, "PYTHONPATH": str(older), "SPARK_HOME": str(older / "pyspark")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as peer:
        assert peer.stdin is not None and peer.stdout is not None
        assert peer.stdout.readline() == "ready\n"
        lines = peer.stdout

        def land(topic: str, directory: str) -> tuple[float, float]:
            assert peer.stdin is not None
            before = cpu_of_tree(peer.pid)
            peer.stdin.write(f"{topic} {directory}\n")
            peer.stdin.flush()
            return float(lines.readline()), cpu_of_tree(peer.pid) - before

        yield land
        peer.stdin.close()


def _one_process(bootstrap: str, topic: str, directory: str) -> tuple[float, float]:
    """Consume all partitions and append batches by delta-rs, offsets as transactions."""
    import confluent_kafka as kafka
    import pyarrow as pa
    from deltalake import CommitProperties, Transaction, write_deltalake

    begin, cpu = time.perf_counter(), time.process_time()
    consumer = kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    ends = {}
    for number in range(PARTITIONS):
        partition = kafka.TopicPartition(topic, number, 0)
        ends[number] = consumer.get_watermark_offsets(partition)[1]
    consumer.assign([kafka.TopicPartition(topic, number, 0) for number in ends])
    left = sum(ends.values())
    following: dict[int, int] = {}
    while left:
        records = consumer.consume(min(_POLL_RECORDS, left), timeout=10)
        left -= len(records)
        rows = {
            "key": pa.array([each.key() for each in records], pa.binary()),
            "value": pa.array([each.value() for each in records], pa.binary()),
            "partition": pa.array([each.partition() for each in records], pa.int32()),
            "offset": pa.array([each.offset() for each in records], pa.int64()),
            "timestamp": pa.array(
                [each.timestamp()[1] for each in records], pa.timestamp("ms", "UTC")
            ).cast(pa.timestamp("us", "UTC")),
        }
        following |= {each.partition(): each.offset() + 1 for each in records}
        noted = [Transaction(f"{topic}-{number}", end) for number, end in following.items()]
        properties = CommitProperties(app_transactions=noted)
        write_deltalake(directory, pa.table(rows), mode="append", commit_properties=properties)
    consumer.close()
    return time.perf_counter() - begin, time.process_time() - cpu


def _ingests(
    cluster: LocalCluster, ways: list[_Way], size: int, run_bytes: int, rounds: int, scratch: Path
) -> str:
    topic, rows = f"land-{size}", run_bytes // size
    with BlockingClient(cluster.bootstrap, "bench") as client:
        fill_topic(client, topic, PARTITIONS, rows, size)
    for way in ways:
        way.rows_per_s, way.cpu_s_per_million = [], []
    for number in range(_WARM_UP_ROUNDS + rounds):
        for way in ways:
            with tempfile.TemporaryDirectory(dir=scratch) as directory:
                seconds, cpu = way.run(topic, f"{directory}/table")
            if number >= _WARM_UP_ROUNDS:
                way.rows_per_s.append(rows / seconds)
                way.cpu_s_per_million.append(cpu / rows * 1e6)
    ours = statistics.median(ways[0].rows_per_s)
    lines = [
        (
            way.name,
            spread([speed / 1000 for speed in way.rows_per_s]),
            spread(way.cpu_s_per_million, 2),
            f"{ours / statistics.median(way.rows_per_s):.2f}",
        )
        for way in ways
    ]
    words = "1 KiB" if size == 1024 else f"{size} B"
    return table(
        f"Lake: {INGEST} of {words} ({rounds} runs of {rows:,} rows, in turns)",
        lines,
        ("", "thousand rows/s", "CPU s per million", f"{OURS} over it"),
    )


def _commits(scratch: Path) -> str:
    """The time of a commit of one file, with the look before it, to tables of many versions."""
    from bench.lake_versions import add_delta_versions, add_iceberg_versions
    from tidelog.spark.lake.places import lake_at

    lines: list[tuple[str, ...]] = []
    for name, place, options, add_versions in (
        ("Delta", str(scratch / "delta"), {}, add_delta_versions),
        (
            "Iceberg",
            "iceberg:bench.commits",
            {"warehouse": str(scratch / "iceberg")},
            add_iceberg_versions,
        ),
    ):
        lake = lake_at(place, options)
        _time_commits(lake, VERSIONS[1])
        for count, commits in VERSIONS.items():
            add_versions(lake, count)
            lines.append(
                (name, f"{count:,}", str(commits), spread(_time_commits(lake, commits), 1))
            )
    return table(
        f"Lake: {COMMITS} of one file",
        lines,
        ("", "versions before", "commits", "ms a commit"),
    )


def _time_commits(lake: Lake, commits: int) -> list[float]:
    """Return the ms of this many commits of one file each, with the look before each."""
    from tidelog.spark.columns import arrow_schema
    from tidelog.spark.lake.runs import commit_run, opened
    from tidelog.spark.lake.staging import FilePlan, TaskFiles, new_run, run_folder
    from tidelog.spark.lake.state import Origin, PartitionRun, TableChange
    from tidelog.spark.options import COLUMNS

    schema = arrow_schema(COLUMNS)
    state = opened(lake, Origin("bench", "id", "cluster"), lambda: schema)
    found = []
    for _ in range(commits):
        run, end = new_run(), state.following().get(0, 0)
        files = TaskFiles(FilePlan(run_folder(lake, run, state.version), "bench", schema))
        files.append(0, _one_row(end))
        change = TableChange(run, (PartitionRun(0, end, end + 1, 1),), tuple(files.close()))
        begin = time.perf_counter()
        state = commit_run(lake, lake.read(), change).state
        found.append((time.perf_counter() - begin) * 1000)
    return found


def _one_row(offset: int) -> pa.RecordBatch:
    import pyarrow as pa

    from tidelog.spark.columns import arrow_schema
    from tidelog.spark.options import COLUMNS

    row = {"key": b"k", "value": b"v", "topic": "bench", "partition": 0, "offset": offset}
    return pa.RecordBatch.from_pylist([row], arrow_schema(COLUMNS))


def _follow(spark: SparkSession, cluster: LocalCluster, scratch: Path) -> str:
    """A follow of many small batches: time of a batch, files, log, memory."""
    import numpy as np

    from tidelog.spark.lake.places import lake_at
    from tidelog.spark.pipelines.ingest import IngestReport, follow

    tp = TopicPartition("follow", 0)
    place = scratch / "follow"
    stop = threading.Event()
    times: list[float] = []
    with BlockingClient(cluster.bootstrap, "bench") as client:
        client.create_topic(tp.topic, 1, 1, KEPT)
        client.await_topic(tp.topic)
        generator = np.random.default_rng(0)

        def produce() -> None:
            client.produce(tp, batch(generator, 0, _RECORDS_PER_BATCH, 100), acks=1)

        def on_batch(report: IngestReport) -> None:
            times.append(report.seconds * 1000)
            if len(times) == _BATCHES:
                stop.set()
            else:
                produce()

        produce()
        follow(
            spark,
            cluster.bootstrap,
            tp.topic,
            str(place),
            stop=stop,
            interval_s=0.01,
            on_batch=on_batch,
        )
    fifth = _BATCHES // 5
    lines = [
        (
            f"{first:,} to {first + fifth:,}",
            spread(times[first : first + fifth]),
        )
        for first in range(0, _BATCHES, fifth)
    ]
    files = len(lake_at(str(place), None).files())
    log = [path.stat().st_size for path in (place / "_delta_log").iterdir()]
    memory = _memory_below(os.getpid())
    title = (
        f"Lake: {FOLLOW}, {_BATCHES:,} batches of {_RECORDS_PER_BATCH} records; at the end {files}"
        f" files, a log of {len(log):,} files and {sum(log) / MIB:.1f} MiB, JVM and workers"
        f" {memory / MIB:,.0f} MiB, driver {pss_bytes([os.getpid()]) / MIB:,.0f} MiB"
    )
    return table(title, lines, ("batches", "ms a batch"))


def _memory_below(root: int) -> int:
    """Return the bytes of a process's descendants, of which some may be ending."""
    found = 0
    for pid in _processes_below(root)[1:]:
        with suppress(ProcessLookupError, FileNotFoundError):
            found += pss_bytes([pid])
    return found


def _processes_below(root: int) -> list[int]:
    """Return a process and its descendants."""
    found = [root]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(ProcessLookupError, FileNotFoundError):
                found += map(int, children.read_text().split())
    return found
