"""What a check has at hand: the cluster, one client, and names of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.clients import confluent
from tests.clients.matrix.driver import PATIENCE_S, Driver, eventually
from tests.support.clients.samples import Record

from tidelog.core.string_hash import coordinating_partition
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

OFFSETS_TOPIC = "__consumer_offsets"


class ClientHarness:
    """One check with one client. What is asked of brokers here does not go through the client."""

    def __init__(self, cluster: LocalCluster, driver: Driver | None, name: str) -> None:
        self.cluster = cluster
        self._driver = driver
        self._name = name
        self._numbers = itertools.count(1)

    @property
    def driver(self) -> Driver:
        """The client under test, where there is one."""
        assert self._driver is not None
        return self._driver

    def name(self) -> str:
        """A name that nobody has: of a topic or a group."""
        return f"{self._name}-{next(self._numbers)}"

    def make_topic(self, partitions: int = 1) -> str:
        """Three replicas, two of which must be in sync."""
        name = self.name()
        with BlockingClient(self.cluster.bootstrap) as client:
            client.create_topic(name, partitions, 3, {"min.insync.replicas": "2"})
        for place in self.cluster.places().values():
            # All brokers know it: not every client asks again when one does not.
            with BlockingClient(place.address) as client:
                client.await_topic(name, min_isr=3)
        return name

    def fill(self, topic: str, partition: int, count: int, first: int = 0) -> None:
        """Numbers as values, by librdkafka, whatever client is under test."""
        numbers = [
            Record(None, b"%d" % number, (), 1_000_000 + 10 * number)
            for number in range(first, first + count)
        ]
        confluent.write(self.cluster.bootstrap, topic, partition, "none", numbers)

    def end(self, topic: str, partition: int = 0) -> int:
        tp = TopicPartition(topic, partition)
        with BlockingClient(self.cluster.bootstrap) as client:
            return client.list_offsets({tp: -1})[tp].offset

    def await_end(self, topic: str, at_least: int) -> None:
        eventually(lambda: self.end(topic) >= at_least, lambda: self.end(topic))

    def _controllers(self) -> list[int]:
        """Whom each broker takes for the controller: clients ask any of them."""
        found = []
        for place in self.cluster.places().values():
            with BlockingClient(place.address) as client:
                found.append(client.metadata().controller_id)
        return found

    def leader(self, topic: str, partition: int) -> int:
        with BlockingClient(self.cluster.bootstrap) as client:
            return client.metadata([topic]).topics[topic].partitions[partition].leader

    def await_leader_other_than(self, topic: str, broker: int) -> None:
        """Wait until partition 0 has another leader."""
        eventually(lambda: self.leader(topic, 0) not in (broker, -1), lambda: self.leader(topic, 0))

    def coordinator(self, group: str) -> int:
        """The broker that leads the group's partition of the internal topic."""
        with BlockingClient(self.cluster.bootstrap) as client:
            partitions = client.metadata([OFFSETS_TOPIC]).topics[OFFSETS_TOPIC].partitions
        return partitions[coordinating_partition(group, len(partitions))].leader

    @contextmanager
    def killed(self, broker: int) -> Iterator[None]:
        """SIGKILL at the beginning; at the end the broker is back and everything is in sync."""
        self.cluster.kill(broker)
        try:
            yield
        finally:
            self.cluster.start(broker, PATIENCE_S)
            self.cluster.await_full_isrs(PATIENCE_S)
            eventually(lambda: len(set(self._controllers())) == 1, self._controllers)


def settled(seconds: float) -> None:
    """Let something that must not happen have the time to happen."""
    time.sleep(seconds)  # a rebalance that is not to come
