"""Topics that come into being by being written to, as most clients' users expect."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer
from kafka import KafkaConsumer
from tests.clients import confluent, kafka_python
from tests.clients.conftest import NUM_PARTITIONS
from tests.support.clients import kcat
from tests.support.clients.samples import Record

from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

RECORDS = [Record(b"key", b"%d" % number) for number in range(10)]


def assert_made_by_default(cluster: LocalCluster, topic: str) -> None:
    """It has the partitions and replicas that the brokers' configuration says."""
    with BlockingClient(cluster.bootstrap) as client:
        made = client.await_topic(topic, min_isr=3)
    assert sorted(made.partitions) == list(range(NUM_PARTITIONS))
    for partition in made.partitions.values():
        assert sorted(partition.replicas) == list(cluster.broker_ids)


def values(found: list[Record]) -> list[bytes | None]:
    return [each.value for each in found]


def test_librdkafka_writes_to_a_topic_that_is_not_there_yet(cluster: LocalCluster) -> None:
    confluent.write(cluster.bootstrap, "by-librdkafka", 1, "none", RECORDS)
    assert_made_by_default(cluster, "by-librdkafka")
    assert values(confluent.read(cluster.bootstrap, "by-librdkafka", 1)) == values(RECORDS)


@kcat.needs_kcat
def test_kcat_writes_to_a_topic_that_is_not_there_yet(cluster: LocalCluster) -> None:
    kcat.write(cluster.bootstrap, "by-kcat", 0, "none", RECORDS)
    assert_made_by_default(cluster, "by-kcat")
    assert values(kcat.read(cluster.bootstrap, "by-kcat", 0)) == values(RECORDS)


def test_kafka_python_writes_to_a_topic_that_is_not_there_yet(cluster: LocalCluster) -> None:
    kafka_python.write(cluster.bootstrap, "by-kafka-python", 0, "none", RECORDS)
    assert_made_by_default(cluster, "by-kafka-python")
    assert values(kafka_python.read(cluster.bootstrap, "by-kafka-python", 0)) == values(RECORDS)


@pytest.mark.parametrize("name", ["not/a/name", "..", "x" * 250])
def test_a_bad_name_is_refused_and_makes_nothing(bootstrap: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 10_000})
    refusals: list[str] = []
    producer.produce(
        name,
        b"value",
        on_delivery=lambda error, _: refusals.append("" if error is None else error.name()),
    )
    assert producer.flush(confluent.PATIENCE_S) == 0
    assert refusals == ["TOPIC_EXCEPTION"]
    with BlockingClient(bootstrap) as client:
        assert name not in client.metadata().topics


def test_a_consumer_of_kafka_python_has_its_topic_made(cluster: LocalCluster) -> None:
    consumer = KafkaConsumer("read-by-kafka-python", bootstrap_servers=cluster.bootstrap)
    try:
        consumer.poll(timeout_ms=100)
        assert_made_by_default(cluster, "read-by-kafka-python")
    finally:
        consumer.close()


def test_a_consumer_of_aiokafka_has_its_topic_made(cluster: LocalCluster) -> None:
    async def read() -> None:
        consumer = AIOKafkaConsumer("read-by-aiokafka", bootstrap_servers=cluster.bootstrap)
        async with consumer:
            await consumer.getmany(timeout_ms=100)

    asyncio.run(read())
    assert_made_by_default(cluster, "read-by-aiokafka")


@kcat.needs_kcat
def test_reading_with_librdkafka_makes_no_topic(bootstrap: str) -> None:
    with pytest.raises(AssertionError, match="Unknown topic"):
        kcat.read(bootstrap, "only-read", 0)
    with BlockingClient(bootstrap) as client:
        assert "only-read" not in client.metadata().topics
