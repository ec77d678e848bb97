"""Clients that take all connections keep no broker out."""

from __future__ import annotations

from tests.cluster.conftest import MakeCluster, eventually
from tests.support.cluster.raw_connections import RawConnection
from tests.support.cluster.values import read_values, write_values

from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

LIMIT = 40
TP = TopicPartition("flooded", 0)


def test_a_broker_returns_though_clients_hold_all_connections_of_the_others(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, max_connections=str(LIMIT), min_insync_replicas="3")
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TP.topic, 3, 3)
        client.await_topic(TP.topic)
    write_values(cluster.bootstrap, TP, [b"before"])
    with BlockingClient(cluster.bootstrap) as client:
        client.metadata([TP.topic])  # it is connected before the flood
        cluster.kill(2)
        flood = [RawConnection(cluster, number) for number in (1, 3) for _ in range(LIMIT)]
        try:
            cluster.start(2)

            def all_in_sync() -> bool:
                topic = client.metadata([TP.topic]).topics[TP.topic]
                return all(len(part.isr) == 3 for part in topic.partitions.values())

            eventually(all_in_sync, "a broker that returns while clients hold all connections")
        finally:
            for each in flood:
                each.reset()
    write_values(cluster.bootstrap, TP, [b"after"])
    assert read_values(cluster.bootstrap, TP) == [b"before", b"after"]
    log = cluster.places()[1].last_lines(400)
    assert log.count(f"max.connections={LIMIT} is reached") == 1
    assert "127.0.0.1" in log
