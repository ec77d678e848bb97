"""Spark's own Kafka connector (spark-sql-kafka-0-10), unmodified, reads and writes our brokers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.spark.test_with_brokers import make_topic, produce
from tests.support.clients.absent import Absent
from tests.support.clients.jars import jars_of_spark

from tidelog.runtime.blocking import BlockingClient
from tidelog.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
#: The newest that the registry has with all that it needs; PySpark is newer (requirements.lock).
VERSION = "4.2.0"
RECORDS = 5_000
Found = dict[str, Any]
#: Topics around each pattern: at the beginning, in the middle, at the end, in other letters.
AROUND = ("pat-a", "pat-ab", "xpat-a", "x.pat-a.y", "PAT-A", "pat_a")
PATTERNS = ("pat-a", "^pat-a", "pat-a$", "^pat-a$", ".*pat-a.*", "(?i)^pat.a$", "b$|y$", "pat.a")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, tidelog_cluster_module: Cluster) -> Found:
    """What the connector saw of a topic of two partitions with batches of several compressions."""
    try:
        jars = jars_of_spark(VERSION)
    except Absent as absent:
        pytest.skip(f"Spark's Kafka connector: {absent}")
    scratch = tmp_path_factory.mktemp("official")
    cluster = tidelog_cluster_module
    with BlockingClient(cluster.bootstrap) as client:
        make_topic(client, "official", 2)
        make_topic(client, "official-sink", 2)
        for topic in AROUND:
            make_topic(client, topic, 1)
    for topic in AROUND:
        produce(cluster, topic, 0, 1, "none")
    for place, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        produce(cluster, "official", place * 1000, 1000, codec)
    program = Path(__file__).with_name("official_connector.py")
    words = [sys.executable, str(program), cluster.bootstrap, str(jars), str(scratch)]
    words.append(json.dumps(PATTERNS))
    ended = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    told: Found = json.loads((scratch / "found.json").read_text())
    return told


def part(found: Found, name: str) -> Found:
    told: Found = found[name]
    assert "error" not in told, told["error"]
    return told


def test_batch_read(found: Found) -> None:
    told = part(found, "batch")
    assert told["values"] == list(range(RECORDS))
    assert told["partitions"] == [0, 1]
    assert len(told["headers"]) == RECORDS
    assert told["range"] == list(range(10, 20))


def test_streaming_read(found: Found) -> None:
    told = part(found, "stream")
    assert told["values"] == list(range(RECORDS))
    assert told["batches"] > 5


def test_a_pattern_selects_the_same_topics(found: Found) -> None:
    told = part(found, "patterns")
    assert {pattern: each["tidelog"] for pattern, each in told.items()} == {
        pattern: each["kafka"] for pattern, each in told.items()
    }
    assert told["pat-a"]["kafka"] == sorted({"pat-a", "pat-ab", "xpat-a", "x.pat-a.y"})
    assert told["^pat-a$"]["kafka"] == ["pat-a"]


def test_sink(found: Found) -> None:
    assert part(found, "sink")["pairs"] == [[number, 2 * number] for number in range(1000)]
