"""One of a broker's two log directories is slow, with real processes (D13)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.cluster.conftest import eventually
from tests.support.cluster.numbered_producer import NumberedProducer
from tests.support.cluster.values import read_values

from tidelog.client.configs import BROKER as BROKER_CONFIG
from tidelog.client.configs import ConfigChange, ConfigResource
from tidelog.client.event_sentences import read_event
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.names import CLUSTER_EVENTS
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.testing import Cluster

TOPIC: Final = "t"
PARTITIONS: Final = 6
BROKER: Final = 1
CONFIG: Final = {
    "cluster.events.enable": "true",
    "log.dir.slow.action": "demote",
    # Above what a busy machine takes for a write, and below the fault.
    "log.dir.slow.threshold.ms": "150",
    "log.dir.slow.window.ms": "300",
    "min.insync.replicas": "2",
}
DELAY_S: Final = 0.25


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Broker 1 leads all partitions, some in each of its directories."""
    with Cluster(str(tmp_path / "cluster"), 3, config=CONFIG, log_dirs=2) as made:
        replicas = {number: [BROKER, 2, 3] for number in range(PARTITIONS)}
        made.create_topic(TOPIC, replicas=replicas)
        yield made


def held(directory: str) -> list[int]:
    """The partitions of the topic in a directory."""
    names = (name.rpartition("-") for name in os.listdir(directory))
    return sorted(int(number) for topic, _, number in names if topic == TOPIC)


def slow(cluster: Cluster) -> list[str]:
    with BlockingClient(cluster.bootstrap) as client:
        return [each.path for each in client.describe_log_dirs(BROKER) if each.is_slow]


def led(cluster: Cluster) -> list[int]:
    """The partitions that broker 1 leads."""
    found = (each for each in cluster.status().partitions if each.topic == TOPIC)
    return sorted(each.partition for each in found if each.leader == BROKER)


def log_of(cluster: Cluster) -> str:
    return (Path(cluster.local.places()[BROKER].directory) / "log/broker.log").read_text()


@pytest.mark.rule("D13")
def test_others_lead_in_place_of_a_slow_directory_until_it_is_fast_again(
    cluster: Cluster,
) -> None:
    first, second = cluster.local.log_dirs(BROKER)
    producer = NumberedProducer(cluster.bootstrap, TOPIC, PARTITIONS)

    def with_work(holds: Callable[[], bool]) -> Callable[[], bool]:
        def holds_after_work() -> bool:
            producer.send(2 * PARTITIONS)
            return holds()

        return holds_after_work

    producer.send(10 * PARTITIONS)
    assert held(first) and held(second) and led(cluster) == list(range(PARTITIONS))
    cluster.slow_log_dir(BROKER, first, DELAY_S)
    eventually(with_work(lambda: slow(cluster) == [first]), "the directory is slow", 90)
    eventually(with_work(lambda: led(cluster) == held(second)), "others lead")
    cluster.heal_log_dir(BROKER, first)
    eventually(lambda: slow(cluster) == [], "without work, too, it is fast again")

    change = ConfigChange(ConfigOperation.SET, "log.dir.slow.action", "offline")
    with BlockingClient(cluster.bootstrap) as client:
        client.alter_configs(ConfigResource(BROKER_CONFIG, str(BROKER)), [change])
    gone = held(first)
    cluster.slow_log_dir(BROKER, first, DELAY_S)
    offline = f"replicas in {first} are offline"
    eventually(with_work(lambda: offline in log_of(cluster)), "it is given up", 90)
    cluster.slow_log_dir(BROKER, second, DELAY_S)
    eventually(with_work(lambda: led(cluster) == []), "others lead all", 90)
    kept = f"log directory {second} is slow and is not given up"
    eventually(with_work(lambda: kept in log_of(cluster)), "the last directory stays")
    for path in (first, second):
        cluster.heal_log_dir(BROKER, path)
    cluster.restart(BROKER)
    assert held(first) == gone
    cluster.wait_for(under_replicated=0)

    producer.send(PARTITIONS)
    assert producer.failures == []
    for number, values in producer.acknowledged.items():
        assert read_values(cluster.bootstrap, TopicPartition(TOPIC, number)) == values
    events = read_values(cluster.bootstrap, TopicPartition(CLUSTER_EVENTS, 0))
    of_first = [
        event["kind"]
        for event in map(read_event, events)
        if event.get("log_dir") == first and event["broker"] == BROKER
    ]
    assert of_first == ["log_dir_slow", "log_dir_fast_again", "log_dir_slow", "log_dir_failed"]
