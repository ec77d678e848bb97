"""Leaders that move all the time, as processes: librdkafka's records are stored once (V38)."""

from __future__ import annotations

import pytest
from tests.cluster.conftest import MakeCluster
from tests.support.cluster.values import read_values
from tests.support.cluster.writers import writing

from tidelog.client.upkeep import ElectionType
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

TOPIC, PARTITIONS = "moving", 12
#: librdkafka sent a new leader a later batch first about once in seven rounds.
ROUNDS = 100


@pytest.mark.soak
@pytest.mark.rule("V38")
def test_an_idempotent_writer_stores_nothing_twice(make_cluster: MakeCluster) -> None:
    """Every round moves every leader, and the writer has batches in flight to all of them."""
    cluster = make_cluster(3)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
        partitions = client.await_topic(TOPIC, 3).partitions
        orders = {
            TopicPartition(TOPIC, number): tuple(partition.replicas)
            for number, partition in partitions.items()
        }
        with writing(cluster.bootstrap, TOPIC, PARTITIONS, records_per_second=None) as writer:
            for _ in range(ROUNDS):
                orders = {name: (*order[1:], order[0]) for name, order in orders.items()}
                client.reassign(orders)
                client.elect_leaders(ElectionType.PREFERRED, None)
                client.await_topic(TOPIC, 3)
    assert writer.refused == []
    written = list(range(writer.written))
    for partition in range(PARTITIONS):
        read = read_values(cluster.bootstrap, TopicPartition(TOPIC, partition))
        assert [int(value) for value in read] == written[partition::PARTITIONS]
