"""Micro-batches of both connectors, in turns: batches with a cap, and one batch each second.

A batch's time is Spark's `triggerExecution`, of which `addBatch` is the tasks' part; the rest is
planning and the checkpoint. The first batch of a query starts it and does not count. With the
trigger of one second, a thread produces 1,000 rows a second. The latency of its records ends with
their micro-batch and begins when the broker acknowledged them.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.rig import cpu_seconds, spread, table
from bench.spark_rig import batch, cpu_of_spark, fill_topic
from tidelog.core.types import TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.streaming.lag import offsets_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "micro-batches"
_VALUE_BYTES = 100
_BATCHES = 20
#: Rows of a batch with a cap, and the partitions that they come from.
_CAPPED = ((8_000, 8), (300_000, 4))
_RATE, _SECONDS, _LIVE_PARTITIONS = 1_000, 20, 4
_PAUSE_S = 0.05
#: Batches that start a query and do not count.
_STARTING = 1


@dataclass(frozen=True)
class MicroScene:
    """Where the batches run, and the formats by the connectors' names."""

    spark: SparkSession
    cluster: LocalCluster
    scratch: Path
    formats: dict[str, str]

    @contextmanager
    def checkpoint(self) -> Iterator[str]:
        """A directory for one query."""
        path = tempfile.mkdtemp(dir=self.scratch)
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def start(self, name: str, checkpoint: str, trigger: dict[str, Any], **options: str) -> Any:
        """Start a query of a connector that reads to nothing."""
        options["kafka.bootstrap.servers"] = self.cluster.bootstrap
        frame = self.spark.readStream.format(self.formats[name]).options(**options).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger).start()

    def cpu_s(self) -> tuple[float, float]:
        """CPU time so far of Spark, and of the brokers."""
        processes = [self.cluster.process(number) for number in self.cluster.broker_ids]
        return cpu_of_spark(), cpu_seconds([each.pid for each in processes if each is not None])


@dataclass
class _Figures:
    """What one connector's queries measured; times in ms."""

    trigger_ms: list[float] = field(default_factory=list)
    tasks_ms: list[float] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    broker_cpu_ms: list[float] = field(default_factory=list)

    def add(self, progress: list[dict[str, Any]], cpu_s: tuple[float, float], skipped: int) -> None:
        """Add a query with the CPU time that it took."""
        for each in progress[skipped:]:
            self.trigger_ms.append(each["durationMs"]["triggerExecution"])
            self.tasks_ms.append(each["durationMs"]["addBatch"])
        self.cpu_ms.append(cpu_s[0] / len(progress) * 1000)
        self.broker_cpu_ms.append(cpu_s[1] / len(progress) * 1000)

    def row(self, name: str, other: _Figures) -> tuple[str, ...]:
        """The row of a table, with this connector's speed as a multiple of the other's."""
        times = [spread(self.trigger_ms), _late(self.trigger_ms), spread(self.tasks_ms)]
        if self.latency_ms:
            times += [f"{statistics.median(self.latency_ms):,.0f}", _late(self.latency_ms)]
        pairs = ((other.trigger_ms, self.trigger_ms), (other.tasks_ms, self.tasks_ms))
        ratios = [f"{statistics.median(a) / statistics.median(b):.2f}" for a, b in pairs]
        return (name, *times, spread(self.cpu_ms), spread(self.broker_cpu_ms), ", ".join(ratios))


_HEAD = ("", "ms a batch", "95 %", "its tasks, ms")
_LATENCY_HEAD = ("latency, ms", "95 %")
_CPU_HEAD = ("Spark's CPU ms a batch", "the broker's CPU ms a batch", "speed, of the tasks")


def run(scene: MicroScene, rounds: int, wanted: str) -> Iterator[str]:
    """Measure the cases whose title has the text `wanted`; yield a table of each."""
    for rows, partitions in _CAPPED:
        title = f"{TITLE} of {rows:,} rows from {partitions} partitions"
        if wanted in title:
            topic = f"micro-{rows}"
            _fill(scene.cluster, topic, partitions, rows * _BATCHES)
            found = _measure(scene, rounds, partial(_capped, scene, topic, rows))
            queries = f"{rounds} queries of {_BATCHES} batches, in turns"
            head = (*_HEAD, *_CPU_HEAD)
            yield table(f"Spark: {title} ({queries})", _rows(found), head)
    title = f"{TITLE} each second at {_RATE:,} rows a second from {_LIVE_PARTITIONS} partitions"
    if wanted in title:
        _fill(scene.cluster, "micro-live", _LIVE_PARTITIONS, 0)
        found = _measure(scene, rounds, partial(_live, scene, "micro-live"))
        queries = f"{rounds} queries of {_SECONDS} seconds, in turns"
        head = (*_HEAD, *_LATENCY_HEAD, *_CPU_HEAD)
        yield table(f"Spark: {title} ({queries})", _rows(found), head)


def _rows(found: dict[str, _Figures]) -> list[tuple[str, ...]]:
    """The rows of a table; the last connector is what the others are compared with."""
    *_, beside = found.values()
    return [figures.row(name, beside) for name, figures in found.items()]


def _measure(
    scene: MicroScene, rounds: int, query: Callable[[str, _Figures], None]
) -> dict[str, _Figures]:
    """Run a query of each connector in turns; the first round is not counted."""
    figures = {name: _Figures() for name in scene.formats}
    for number in range(rounds + 1):
        for name, counted in figures.items():
            query(name, counted if number else _Figures())
    return figures


def _capped(scene: MicroScene, topic: str, rows: int, name: str, figures: _Figures) -> None:
    """Read a topic in batches of so many rows."""
    before = scene.cpu_s()
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
    with scene.checkpoint() as checkpoint:
        query = scene.start(name, checkpoint, {"availableNow": True}, **options)
        query.awaitTermination()
    figures.add(_read(query), _since(before, scene.cpu_s()), _STARTING)


def _live(scene: MicroScene, topic: str, name: str, figures: _Figures) -> None:
    """Read what a thread produces, a batch each second."""
    with scene.checkpoint() as checkpoint:
        trigger = {"processingTime": "1 second"}
        query = scene.start(name, checkpoint, trigger, subscribe=topic)
        producer = _Producer(scene.cluster.bootstrap, topic)
        try:
            while not (progress := _read(query)) and query.isActive:
                time.sleep(_PAUSE_S)
            before = scene.cpu_s()
            time.sleep(_SECONDS)
        finally:
            produced = producer.stop()
            query.stop()
    skipped = len(progress)
    progress = _read(query)[skipped:]
    figures.add(progress, _since(before, scene.cpu_s()), 0)
    figures.latency_ms += _latencies(progress, produced)


def _read(query: Any) -> list[dict[str, Any]]:
    """Return the progress of each batch that read records; raise the query's error."""
    if query.exception() is not None:
        raise query.exception()
    return [dict(each) for each in query.recentProgress if each["numInputRows"]]


def _latencies(
    progress: list[dict[str, Any]], produced: list[tuple[TopicPartition, int, float]]
) -> Iterator[float]:
    """Yield the ms from the acknowledgement of each record batch to the end of its micro-batch."""
    for each in progress:
        source = each["sources"][0]
        starts, ends = offsets_in(source["startOffset"]), offsets_in(source["endOffset"])
        begun = datetime.fromisoformat(each["timestamp"]).timestamp()
        ended = begun + each["durationMs"]["triggerExecution"] / 1000
        for tp, offset, at in produced:
            if starts.get(tp, 0) <= offset < ends.get(tp, 0):
                yield (ended - at) * 1000


class _Producer:
    """A thread that produces at a rate; it knows when each batch was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._is_over = threading.Event()
        #: Partition, first offset, and time in seconds since 1970 of each record batch.
        self._produced: list[tuple[TopicPartition, int, float]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> list[tuple[TopicPartition, int, float]]:
        """Stop producing; return what was produced."""
        self._is_over.set()
        self._thread.join()
        return self._produced

    def _run(self) -> None:
        generator = np.random.default_rng(0)
        count = int(_RATE * _PAUSE_S)
        with BlockingClient(self._bootstrap, "bench") as client:
            due = time.monotonic()
            while not self._is_over.wait(max(0.0, due - time.monotonic())):
                number = len(self._produced)
                tp = TopicPartition(self._topic, number % _LIVE_PARTITIONS)
                records = batch(generator, number * count, count, _VALUE_BYTES)
                offset = client.produce(tp, records, acks=1)
                self._produced.append((tp, offset, time.time()))
                due += _PAUSE_S


def _fill(cluster: LocalCluster, topic: str, partitions: int, rows: int) -> None:
    with BlockingClient(cluster.bootstrap, "bench") as client:
        if topic not in client.metadata().topics:
            fill_topic(client, topic, partitions, rows, _VALUE_BYTES)


def _since(before: tuple[float, float], now: tuple[float, float]) -> tuple[float, float]:
    return now[0] - before[0], now[1] - before[1]


def _late(values: list[float]) -> str:
    return f"{sorted(values)[int(0.95 * len(values))]:,.0f}"
