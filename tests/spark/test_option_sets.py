"""Drawn sets of options mean the same to tidelog's source and to Spark's own connector."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.spark.option_sets import BASE_MS, HELD, Options, difference, draw_options
from tests.spark.test_official_connector import VERSION
from tests.support.clients.absent import Absent
from tests.support.clients.jars import jars_of_spark

from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "opt-t"
#: Sets of one run: some seconds, and some minutes.
FEW, MANY = 15, 110
_LIMIT_S = 1_500


@pytest.fixture(scope="module")
def topic(tidelog_cluster_module: Cluster) -> Cluster:
    """A cluster with the topic: one partition has lost its first records, one has none."""
    cluster = tidelog_cluster_module
    with BlockingClient(cluster.bootstrap) as client:
        # The timestamps are years old, and the draws take longer than retention's first check.
        client.create_topic(TOPIC, len(HELD), 3, {"retention.ms": "-1"})
        client.await_topic(TOPIC, min_isr=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for partition, (_, end) in HELD.items():
            for offset in range(end):
                at_ms = BASE_MS + 1_000 * offset
                producer.produce(TOPIC, value=b"v", partition=partition, timestamp=at_ms)
        assert producer.flush(60) == 0
        starts = {TopicPartition(TOPIC, number): start for number, (start, _) in HELD.items()}
        client.delete_records({tp: start for tp, start in starts.items() if start})
    return cluster


def held(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """Return the offsets that the topic's partitions have, from log start to end."""
    partitions = [TopicPartition(TOPIC, number) for number in HELD]
    with BlockingClient(cluster.bootstrap) as client:
        first, last = (
            client.list_offsets(dict.fromkeys(partitions, which)) for which in (EARLIEST, LATEST)
        )
    return {tp.partition: (first[tp].offset, last[tp].offset) for tp in partitions}


def differences(cluster: Cluster, scratch: Path, drawn: list[Options]) -> list[str]:
    """Read every set with both connectors; return the differences that are not listed."""
    try:
        jars = jars_of_spark(VERSION)
    except Absent as absent:
        pytest.skip(f"Spark's Kafka connector: {absent}")
    sets = scratch / "sets.json"
    sets.write_text(json.dumps(drawn), encoding="utf-8")
    words = [sys.executable, "-m", "tests.spark.option_sets", cluster.bootstrap, str(jars)]
    ended = subprocess.run(
        [*words, str(scratch), str(sets)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert held(cluster) == HELD, "both connectors have read the same log"
    found = json.loads((scratch / "found.json").read_text(encoding="utf-8"))
    return [
        f"{options}: {text}"
        for options, each in zip(drawn, found, strict=True)
        if (text := difference(each["kafka"], each["tidelog"], options)) is not None
    ]


def test_few_sets_mean_the_same(topic: Cluster, tmp_path: Path) -> None:
    draws = random.Random(1)
    drawn = [draw_options(draws, TOPIC) for _ in range(FEW)]
    drawn.append({"subscribe": TOPIC, "startingTimestamp": "-2", "endingTimestamp": "-1"})
    drawn.append({"subscribe": TOPIC, "minPartitions": "10", "maxRecordsPerPartition": "30"})
    assert differences(topic, tmp_path, drawn) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 11))
def test_many_sets_mean_the_same(topic: Cluster, tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    drawn = [draw_options(draws, TOPIC) for _ in range(MANY)]
    assert differences(topic, tmp_path, drawn) == []
