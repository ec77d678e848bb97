"""Metrics of hosted replicas: the bytes of each partition, and the limit of series."""

from __future__ import annotations

import pytest
from tests.support.broker.coordinator import told
from tests.support.broker.fakes import T0, FakeBroker, a_cluster, state

from tidelog.broker.replicas import metrics as declared
from tidelog.broker.replicas import replica_readings
from tidelog.broker.replicas.replica_readings import ReplicaReadings
from tidelog.core.types import TopicPartition


def traffic(broker: FakeBroker) -> dict[tuple[str, ...], tuple[int, ...]]:
    """The bytes in and out by the labels of partitions."""
    readings = ReplicaReadings(broker.services, broker.replicas, broker.fetch_sessions)
    return {
        labels: values
        for group, values, labels in readings.replicas()
        if group == declared.PARTITION_BYTES
    }


@told
async def test_a_partition_shows_its_bytes_from_its_first_traffic_until_its_replica_is_gone() -> (
    None
):
    broker = a_cluster()[1]
    await broker.command(*(state(partition=each, is_new=True) for each in range(3)))
    assert traffic(broker) == {}
    broker.partition().produced_bytes += 150
    broker.partition().fetched_bytes += 60
    broker.partition(TopicPartition("t", 1)).fetched_bytes += 7
    assert traffic(broker) == {("t", "0"): (150, 60), ("t", "1"): (0, 7)}
    first = broker.partition()
    await broker.stop(T0)
    broker.replicas.forget(first)
    first.produced_bytes += 5  # an append that ends late
    assert traffic(broker) == {("t", "1"): (0, 7)}


@told
async def test_partitions_beyond_the_limit_have_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_readings, "MAX_METERED_PARTITIONS", 1)
    broker = a_cluster()[1]
    await broker.command(*(state(partition=each, is_new=True) for each in range(2)))
    for index in range(2):
        broker.partition(TopicPartition("t", index)).produced_bytes += 10
    assert traffic(broker) == {("t", "0"): (10, 0)}
