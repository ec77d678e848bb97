"""A checkpoint moves between Spark's Kafka connector and ours, in both directions."""

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
#: The newest that the registry has with all that it needs.
VERSION = "4.2.0"
RECORDS = 3_000
TOPIC = "moved"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, tidelog_cluster_module: Cluster) -> Any:
    """What the program's two journeys left."""
    try:
        jars = jars_of_spark(VERSION)
    except Absent as absent:
        pytest.skip(f"Spark's Kafka connector: {absent}")
    scratch = tmp_path_factory.mktemp("moved")
    cluster = tidelog_cluster_module
    with BlockingClient(cluster.bootstrap) as client:
        make_topic(client, TOPIC, 3)
    produce(cluster, TOPIC, 0, RECORDS, "zstd")
    program = Path(__file__).with_name("moved_checkpoint.py")
    words = [sys.executable, str(program), cluster.bootstrap, str(jars), str(scratch), TOPIC]
    ended = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads((scratch / "found.json").read_text())


@pytest.mark.parametrize(("first", "second"), [("kafka", "tidelog"), ("tidelog", "kafka")])
def test_nothing_is_lost_or_doubled_in_mid_stream_and_with_a_batch_half_done(
    found: Any, first: str, second: str
) -> None:
    journey = found[first]
    assert "error" not in journey, journey["error"]
    assert journey["values"] == list(range(RECORDS))
    assert journey["complete"]
    # Each leg began with the batch that the one before had planned and not completed.
    assert journey["planned"][:6] == [
        [connector, number]
        for number, connector in enumerate([first, first, second, second] + [first] * 2)
    ]
    assert sum(journey["last"][TOPIC].values()) == RECORDS
