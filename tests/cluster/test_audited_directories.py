"""The audit finds no damage in directories of brokers that work, move replicas, die and stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.audits import OwnProcess, damage
from tests.support.cluster.writers import writing

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.audit.auditing import Audit, audit_directories

TOPIC = "flights"
PARTITIONS = 3
MOVED = 2
CONFIG = {
    "min.insync.replicas": "2",
    "log.segment.bytes": "20000",
    "log.retention.bytes": "200000",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(str(tmp_path / "cluster"), 3, config=CONFIG, log_dirs=2)
    try:
        made.up()
        with BlockingClient(made.bootstrap, timeout_ms=60_000) as client:
            brokers = {number: [1, 2, 3] for number in range(PARTITIONS)}
            client.create_topic(TOPIC, -1, -1, assignment=brokers)
            client.await_topic(TOPIC, min_isr=3)
        yield made
    finally:
        made.down(timeout_s=5.0)


def without_damage(cluster: LocalCluster, *, asks: bool) -> Audit:
    bootstrap = cluster.bootstrap if asks else None
    found = audit_directories(OwnProcess(), cluster.log_directories(), bootstrap=bootstrap)
    assert [f"{each.kind} {each.path}: {each.sentence}" for each in damage(found)] == []
    assert sum(len(each.audits) for each in found.partitions) >= 3 * PARTITIONS
    return found


def move_all(cluster: LocalCluster, client: BlockingClient) -> None:
    """Move each replica of a broker to the other log directory."""
    paths = cluster.log_dirs(MOVED)
    for partition in range(PARTITIONS):
        tp = TopicPartition(TOPIC, partition)
        target = next(path for path in paths if not (Path(path) / str(tp)).is_dir())
        assert client.move_replicas(MOVED, {tp: target}) == {tp: ErrorCode.NONE}


def test_directories_of_brokers_that_work_move_die_and_stop_have_no_damage(
    cluster: LocalCluster,
) -> None:
    with writing(cluster.bootstrap, TOPIC, PARTITIONS):
        for asks in (True, False):
            without_damage(cluster, asks=asks)
        with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
            move_all(cluster, client)
            for asks in (True, False):
                without_damage(cluster, asks=asks)
            cluster.kill(MOVED)
            for asks in (True, False):
                without_damage(cluster, asks=asks)
            cluster.start(MOVED)
            client.await_topic(TOPIC, min_isr=3)
        without_damage(cluster, asks=True)
    for broker in (1, 2, 3):
        cluster.kill(broker)
    without_damage(cluster, asks=False)
    cluster.up()
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        client.await_topic(TOPIC, min_isr=3)
    cluster.down()
    stopped = without_damage(cluster, asks=False)
    assert all(each.is_clean for each in stopped.directories)
