"""What measurements of Spark need: topics of unlike records, one session, CPU of its processes.

Both connectors run in one session, so that the same JIT-compiled Spark serves both. Every record
has bytes of its own: equal payloads make Parquet look a third faster than it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from bench.rig import MIB
from tidelog.core.types import TopicPartition
from tidelog.records.batch import ATTRIBUTES_POSITION, HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.record_encoding import RecordEncoder
from tidelog.spark.rows import is_compiled
from tidelog.spark.session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The newest connector that Maven has with all that it needs (tests/spark).
CONNECTOR = "4.2.0"
CORES = 2
HEAP = "2g"
_BATCH_BYTES = MIB // 2
_KEY_BYTES = 16
#: Configuration of topics, whose records are dated in the past: the broker would delete them after
#: five minutes.
KEPT = {"retention.ms": "-1"}
_FIRST_TIMESTAMP_MS = 1_700_000_000_000
_NO_PRODUCER = (-1, -1, -1)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def fill_topic(
    client: BlockingClient, topic: str, partitions: int, rows: int, value_bytes: int
) -> None:
    """Make a topic of so many records, evenly over its partitions; keys of 16 bytes."""
    if not is_compiled():
        raise SystemExit("bench: src/tidelog/spark/_rows.c is not compiled: python hatch_build.py")
    generator = np.random.default_rng(value_bytes)
    per_batch = max(1, _BATCH_BYTES // (value_bytes + _KEY_BYTES + 10))
    client.create_topic(topic, partitions, 1, KEPT)
    client.await_topic(topic)
    for number, start in enumerate(range(0, rows, per_batch)):
        count = min(per_batch, rows - start)
        records = batch(generator, start, count, value_bytes)
        client.produce(TopicPartition(topic, number % partitions), records, acks=1)


def batch(generator: np.random.Generator, start: int, count: int, value_bytes: int) -> bytearray:
    """Return a batch of records with keys from `start` on, each with bytes of its own."""
    keys = np.char.zfill(np.arange(start, start + count).astype(f"S{_KEY_BYTES}"), _KEY_BYTES)
    times = _FIRST_TIMESTAMP_MS + np.arange(start, start + count, dtype=np.int64) // 1000
    encoder = RecordEncoder(
        _fixed(keys.tobytes(), count, _KEY_BYTES),
        _fixed(generator.bytes(count * value_bytes), count, value_bytes),
        None,
        times,
    )
    payload, timestamps = encoder.encode(0, count)
    data = bytearray(HEADER_BYTES)
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload)
    HEADER.pack_into(data, 0, 0, length, -1, 2, 0, 0, count - 1, *timestamps, *_NO_PRODUCER, count)
    data += payload
    data[17:21] = crc32c(memoryview(data)[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    return data


def _fixed(data: bytes, count: int, size: int) -> pa.BinaryArray:
    offsets = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


@contextmanager
def session(jars: Path | None, log_path: str) -> Iterator[SparkSession]:
    """A session as `tidelog pipeline` starts it, with the official connector's jars if any."""
    conf = {}
    if jars is not None:
        conf["spark.jars"] = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
    spark = start_session("bench", cores=CORES, memory=HEAP, log_path=log_path, conf=conf)
    try:
        yield spark
    finally:
        stop_session(spark)


def cpu_of_spark() -> float:
    """CPU time of the session's JVM and of all Python workers below it, ended ones included."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    return cpu_of_tree(gateway.proc.pid)


def cpu_of_tree(root: int) -> float:
    """CPU time of a process, its descendants, and those of them that have ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return sum(ticks.get(pid, 0) for pid in found) / _TICKS_PER_S
        found |= more


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Run an action of the session; return its seconds and Spark's CPU seconds."""
    cpu, begin = cpu_of_spark(), time.perf_counter()
    action()
    return time.perf_counter() - begin, cpu_of_spark() - cpu
