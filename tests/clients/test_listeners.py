"""Clients behind a proxy, which reach brokers by the external listener's advertised ports alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.clients.proxies import Proxy, connected_ports
from tests.support.clients.librdkafka import value_of

from tidelog.local import LocalCluster
from tidelog.local.ports import free_ports
from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 60.0
PARTITIONS = 3
RECORDS = 60


class Outside:
    """Three brokers with an internal and an external listener, and a proxy before each."""

    def __init__(self, directory: Path) -> None:
        self.cluster = LocalCluster(str(directory), 3)
        self.cluster.up()
        self.cluster.down()
        self.internal = {place.port for place in self.cluster.places().values()}
        self.proxies: dict[int, Proxy] = {}
        for place, port in zip(self.cluster.places().values(), free_ports(3), strict=True):
            proxy = self.proxies[place.broker_id] = Proxy(port)
            with Path(place.properties_path).open("a") as properties:
                properties.write(
                    f"listeners=INSIDE://{place.address},OUTSIDE://127.0.0.1:{port}\n"
                    f"advertised.listeners=INSIDE://{place.address},"
                    f"OUTSIDE://127.0.0.1:{proxy.port}\n"
                    "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT\n"
                    "inter.broker.listener.name=INSIDE\n"
                )
        self.cluster.up()

    @property
    def bootstrap(self) -> str:
        """One proxy: everything else must come from answers."""
        return f"127.0.0.1:{self.proxies[1].port}"

    @property
    def advertised(self) -> dict[int, int]:
        """Ports of the proxies by broker."""
        return {number: proxy.port for number, proxy in self.proxies.items()}

    def make_topic(self, name: str) -> None:
        """With three replicas, two of which must be in sync."""
        with BlockingClient(self.cluster.bootstrap) as client:
            client.create_topic(name, PARTITIONS, 3, {"min.insync.replicas": "2"})
            client.await_topic(name, min_isr=3)

    def kill_leader(self, topic: str) -> int:
        """Kill the leader of the first partition, which is not where clients bootstrap from."""
        with BlockingClient(self.cluster.bootstrap) as client:
            leaders = [
                each.leader for each in client.metadata([topic]).topics[topic].partitions.values()
            ]
        victim = next(leader for leader in leaders if leader != 1)
        self.cluster.kill(victim)
        return victim

    def close(self) -> None:
        """End brokers and proxies."""
        self.cluster.down(timeout_s=5.0)
        for proxy in self.proxies.values():
            proxy.close()


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with closing(Outside(tmp_path_factory.mktemp("listeners") / "cluster")) as made:
        yield made


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "nothing comes"


def write_with_librdkafka(producer: Producer, topic: str, numbers: range) -> None:
    failures: list[KafkaError] = []
    for number in numbers:
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def test_librdkafka_lives_on_the_external_listener(outside: Outside) -> None:
    topic = "librdkafka"
    outside.make_topic(topic)
    settings: dict[str, Any] = {"bootstrap.servers": outside.bootstrap}
    admin = AdminClient(settings)
    known = admin.list_topics(timeout=PATIENCE_S)
    assert {number: each.port for number, each in known.brokers.items()} == outside.advertised
    described = admin.describe_cluster().result(PATIENCE_S)
    assert {node.id: node.port for node in described.nodes} == outside.advertised
    admin.create_topics([NewTopic("by-admin", 1, 3)])["by-admin"].result(PATIENCE_S)

    producer = Producer(settings | {"acks": "all", "enable.idempotence": True})
    consumer = Consumer(
        settings | {"group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
    )
    found: list[int] = []

    def read(count: int) -> bool:
        message = consumer.poll(0.5)
        if message is not None:
            error = message.error()
            if error is None:
                found.append(int(value_of(message)))
            elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise KafkaException(error)
        return len(found) >= count

    with closing(consumer):
        consumer.subscribe([topic])
        write_with_librdkafka(producer, topic, range(RECORDS))
        wait_until(lambda: read(RECORDS))
        assert connected_ports().isdisjoint(outside.internal)
        victim = outside.kill_leader(topic)
        write_with_librdkafka(producer, topic, range(RECORDS, 2 * RECORDS))
        wait_until(lambda: read(2 * RECORDS))
        assert sorted(found) == list(range(2 * RECORDS))
        consumer.commit(asynchronous=False)
        assert connected_ports().isdisjoint(outside.internal)
    outside.cluster.start(victim)
    assert all(proxy.accepted for proxy in outside.proxies.values())


def test_kafka_python_lives_on_the_external_listener(outside: Outside) -> None:
    topic = "kafka-python"
    outside.cluster.await_full_isrs()
    outside.make_topic(topic)
    settings: dict[str, Any] = {"bootstrap_servers": outside.bootstrap}
    with closing(KafkaAdminClient(**settings)) as admin:
        nodes = admin.describe_cluster()["brokers"]
    assert {each["broker_id"]: each["port"] for each in nodes} == outside.advertised

    producer = KafkaProducer(acks="all", retries=1000, **settings)
    consumer = KafkaConsumer(
        topic,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        **settings,
    )
    found: list[int] = []

    def write(numbers: range) -> None:
        sent = [
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            for number in numbers
        ]
        for future in sent:
            future.get(PATIENCE_S)

    def read(count: int) -> bool:
        for messages in consumer.poll(timeout_ms=500).values():
            found.extend(int(message.value) for message in messages)
        return len(set(found)) >= count

    with closing(producer), closing(consumer):
        write(range(RECORDS))
        wait_until(lambda: read(RECORDS))
        assert connected_ports().isdisjoint(outside.internal)
        victim = outside.kill_leader(topic)
        write(range(RECORDS, 2 * RECORDS))
        wait_until(lambda: read(2 * RECORDS))
        assert set(found) == set(range(2 * RECORDS))
        consumer.commit()
        assert connected_ports().isdisjoint(outside.internal)
    outside.cluster.start(victim)
