"""The guide from Kafka 3.9 to tidelog and back, typed while a producer and a group run.

The hosts of the guide are addresses of this machine; Kafka's brokers are real ones.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from tests.guide.documents import PATIENCE_S, ROOT, Terminal, end, sections
from tests.support.cluster.broker_processes import KafkaBroker, require_kafka
from tests.support.cluster.values import read_values
from tests.support.cluster.writers import writing
from tests.support.cluster.zookeepers import start_server

from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.local.ports import LOOPBACK, free_ports
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import parse_servers

GUIDE = sections(ROOT / "docs" / "guide" / "operate" / "from-kafka.md")
TYPED = {word: text for each in GUIDE.values() for word, text in each.named.items()}
TOPIC, GROUP, PARTITIONS = "flights", "billing", 4
RECORDS_PER_SECOND = 100
#: Keys of Kafka's brokers. Sessions outlast the pauses of a busy machine.
KEYS = {
    "zookeeper.session.timeout.ms": "18000",
    "default.replication.factor": "2",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
}


class Walk:
    """Kafka's brokers, tidelog's hosts, and the operator's terminal."""

    def __init__(self, directory: Path, zookeeper: str, running: ExitStack) -> None:
        self._directory = directory
        self._running = running
        ports = free_ports(4)
        self._places = {
            f"host{number}:9092": f"{LOOPBACK}:{port}" for number, port in enumerate(ports, 1)
        }
        self._places["zk1:2181"] = zookeeper
        self.kafka = {
            number: KafkaBroker(
                directory / f"host{number}", number, ports[number - 1], f"{zookeeper}/kafka", KEYS
            )
            for number in (1, 2)
        }
        for broker in self.kafka.values():
            running.callback(broker.kill)
        self.started: dict[int, subprocess.Popen[str]] = {}
        self.logs: dict[int, Path] = {}

    def here(self, text: str) -> str:
        """Return a text of the guide with the addresses of this machine."""
        for name, address in self._places.items():
            text = text.replace(name, address)
        return text

    @property
    def addresses(self) -> str:
        """Of all brokers of both kinds."""
        return self.here("host1:9092,host2:9092,host3:9092,host4:9092")

    def type(self, word: str) -> str:
        """Type a block of the guide, which must succeed; return all that it prints."""
        terminal = Terminal(self._directory)
        return terminal.run("exec 2>&1\n" + self.here(TYPED["variables"] + TYPED[word]))

    def start(self, number: int) -> None:
        """Type what starts a broker of tidelog on a host of its own."""
        host = f"host{number - 8}"
        directory = self._directory / host
        directory.mkdir()
        terminal = Terminal(directory)
        files = GUIDE["Add tidelog's brokers"].files
        terminal.save({name: self.own(text, directory) for name, text in files.items()})
        self.logs[number] = directory / "broker.log"
        variables = f"ID={number} ADDRESS={host}:9092\n"
        command = f"exec 2>{self.logs[number]}\n{variables}exec {TYPED['start']}"
        started = self.started[number] = terminal.start(self.here(command))
        self._running.callback(end, started)
        self.await_brokers(self.here(f"{host}:9092"), number)

    def own(self, text: str, directory: Path) -> str:
        """Return a file of the guide with the places of a host."""
        return self.here(text).replace("/srv/tidelog", str(directory))

    def stop(self, number: int) -> None:
        """Stop a broker of tidelog by SIGTERM; it must end cleanly."""
        os.kill(self.started[number].pid, signal.SIGTERM)
        code = self.started[number].wait(PATIENCE_S)
        assert code == 0, self.logs[number].read_text()[-3000:]

    def await_brokers(self, address: str, *numbers: int) -> None:
        """Wait until the broker of this address knows of brokers."""
        deadline = time.monotonic() + PATIENCE_S
        while not set(numbers) <= set(brokers_known_at(address)):
            assert time.monotonic() < deadline, f"{address} does not know brokers {numbers}"


def brokers_known_at(address: str) -> list[int]:
    """The brokers of which the broker of this address knows; none while it does not respond."""
    try:
        with BlockingClient(address, timeout_ms=5_000) as client:
            return list(client.metadata().brokers)
    except TidelogError:
        return []


def controller_at(address: str) -> int:
    with BlockingClient(address) as client:
        return client.metadata().controller_id


class Group(threading.Thread):
    """A member of the guide's group that reads and commits until it has the records it shall."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.read: set[bytes] = set()
        self._addresses = bootstrap
        self._expected: int | None = None

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._addresses,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )
        consumer.subscribe([TOPIC])
        deadline = None
        while self._expected is None or len(self.read) < self._expected:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                self.read.add(value)
            if self._expected is not None:
                deadline = deadline or time.monotonic() + PATIENCE_S
                if time.monotonic() > deadline:
                    break
        consumer.close()

    def finish(self, records: int) -> None:
        """Wait until the member has read so many records, or does not get further."""
        self._expected = records
        self.join()


@contextmanager
def reading(bootstrap: str) -> Iterator[Group]:
    """A member of the group that reads within the context, and leaves the group at its end."""
    group = Group(bootstrap)
    group.start()
    try:
        yield group
    finally:
        group.finish(0)


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    require_kafka()
    with ExitStack() as running:
        server = start_server(tmp_path / "zookeeper", maxSessionTimeout="30000")
        running.callback(server.stop)
        asyncio.run(create_chroot(parse_servers(f"zookeeper://{server.address}/kafka")))
        made = Walk(tmp_path, server.address, running)
        made.kafka[1].start()
        made.kafka[2].start()
        yield made


def misread(walk: Walk) -> list[str]:
    """Lines in which a broker of Kafka did not understand a request, and errors of tidelog's."""
    words = ("SchemaException", "BufferUnderflow", "InvalidRequest", "UnsupportedVersion")
    kafkas = [line for each in walk.kafka.values() for line in each.wrote().splitlines()]
    found = [line for line in kafkas if any(word in line for word in words)]
    for log in walk.logs.values():
        found += [line for line in log.read_text().splitlines() if " ERROR " in line]
    return found


def check_all_arrived_once(walk: Walk, sent: int, addresses: str) -> None:
    """Compare the topic with what the producer sent: numbers, round the partitions."""
    for number in range(PARTITIONS):
        values = read_values(addresses, TopicPartition(TOPIC, number))
        assert values == [b"%d" % value for value in range(number, sent, PARTITIONS)]


@pytest.mark.soak
def test_the_walk_from_kafka_to_tidelog_and_back_loses_nothing(walk: Walk) -> None:
    kafka, tidelog = (walk.here(TYPED["variables"].split()[each].split("=")[1]) for each in (0, 1))
    with BlockingClient(kafka, timeout_ms=60_000) as client:
        client.create_topic(TOPIC, PARTITIONS, 2)
    with ExitStack() as clients:
        group = clients.enter_context(reading(walk.addresses))
        writer = clients.enter_context(
            writing(walk.addresses, TOPIC, PARTITIONS, RECORDS_PER_SECOND)
        )
        assert TOPIC in walk.type("before")
        for number in (11, 12):
            walk.start(number)
        walk.await_brokers(kafka, 1, 2, 11, 12)
        walk.type("joined")
        assert controller_at(kafka) == 1, "the guide empties broker 2 first"
        assert "broker 2 holds no replica and may be stopped" in walk.type("second")
        walk.kafka[2].stop()
        assert "broker 1 holds no replica and may be stopped" in walk.type("first")
        walk.kafka[1].stop()
        assert GROUP in walk.type("moved")
        assert controller_at(tidelog) in (11, 12)
        with BlockingClient(tidelog, timeout_ms=60_000) as client:
            client.create_topic("trains", 1, 2)
            client.await_topic("trains", 2)
        in_between = writer.written
        for broker in walk.kafka.values():
            broker.start()
        assert "brokers 11, 12 hold no replica and may be stopped" in walk.type("back")
        for number in (11, 12):
            walk.stop(number)
        assert GROUP in walk.type("returned")
        assert controller_at(kafka) in (1, 2)
        assert in_between < writer.written, "the producer wrote on the way back"
        writer.end()
        sent = writer.written
        group.finish(sent)
    assert writer.refused == []
    check_all_arrived_once(walk, sent, kafka)
    assert group.read == {b"%d" % value for value in range(sent)}
    with BlockingClient(kafka) as client:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        ends = client.list_offsets(dict.fromkeys(partitions, -1))
        committed = client.committed(GROUP)
        assert {tp: committed[tp].offset for tp in partitions} == {
            tp: ends[tp].offset for tp in partitions
        }
        assert "trains" in client.metadata().topics
    assert misread(walk) == []
