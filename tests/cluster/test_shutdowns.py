"""Brokers that are told to stop, as processes: others lead before they are gone (V43)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.conftest import MakeCluster
from tests.support.cluster.values import read_values
from tests.support.cluster.writers import writing

from tidelog.client.upkeep import ElectionType
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

TOPIC, PARTITIONS = "moving", 12


def log_of(cluster: LocalCluster, broker_id: int) -> str:
    return Path(cluster.places()[broker_id].log_path).read_text(encoding="utf-8")


def a_cluster(make_cluster: MakeCluster) -> LocalCluster:
    cluster = make_cluster(3)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
        client.await_topic(TOPIC, 3)
    return cluster


def leaders(cluster: LocalCluster, broker_id: int) -> list[int]:
    """Who leads, as one broker tells it."""
    with BlockingClient(cluster.places()[broker_id].address) as client:
        found = client.metadata([TOPIC]).topics[TOPIC].partitions
        return [found[number].leader for number in range(PARTITIONS)]


@pytest.mark.rule("V43")
def test_every_broker_is_restarted_and_clients_notice_nothing(make_cluster: MakeCluster) -> None:
    cluster = a_cluster(make_cluster)
    with writing(cluster.bootstrap, TOPIC, PARTITIONS) as writer:
        for stopped in (1, 2, 3):
            other = stopped % 3 + 1
            assert stopped in leaders(cluster, other)
            cluster.stop(stopped)
            led_by = leaders(cluster, other)
            assert stopped not in led_by
            assert NO_LEADER not in led_by
            log = log_of(cluster, stopped)
            assert "controlled shutdown: leaderships transferred in " in log
            assert "stopping although this broker" not in log
            cluster.start(stopped)
            cluster.await_full_isrs()
            with BlockingClient(cluster.bootstrap) as client:
                client.elect_leaders(ElectionType.PREFERRED, None)
    assert writer.refused == []
    assert writer.written > 0
    written = list(range(writer.written))
    for partition in range(PARTITIONS):
        read = read_values(cluster.bootstrap, TopicPartition(TOPIC, partition))
        assert [int(value) for value in read] == written[partition::PARTITIONS]


def test_a_cluster_that_stops_as_a_whole_waits_for_nobody(make_cluster: MakeCluster) -> None:
    cluster = a_cluster(make_cluster)
    cluster.down()
    for broker_id in cluster.broker_ids:
        log = log_of(cluster, broker_id)
        assert f"broker {broker_id} stopped" in log, "it was not killed"
        assert "attempt 2 to hand over" not in log
    cluster.up()
    cluster.await_full_isrs()
