"""A cluster on a bad day, for those who look at it through the console alone.

`python -m tests.console.bad_day` starts the cluster with its console, prints the console's address,
and ends both at the next line of its input. A broker's death moved leaders, a group lags because of
one partition, a follower fell out of an ISR, a disk is full, and a move waits for a broker that is
gone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.console.conftest import running_console

from tidelog.client.upkeep import ElectionType
from tidelog.core.names import CLUSTER_EVENTS, CONSUMER_OFFSETS
from tidelog.core.types import TopicPartition as Place
from tidelog.runtime.blocking import BlockingClient
from tidelog.testing import Cluster

_LIMIT_S = 60
ORDERS, ARCHIVE, FLIGHTS, PHOTOS = "orders", "archive", "flights", "photos"
#: The broker that leads partition 3 of the topic with orders, and the follower that cannot fetch.
LEADER_OF_THREE, LAGGARD = 3, 2
#: The broker that died and came back; its disk is full since then.
DEAD, FULL = 4, 4
#: The broker to which a partition is to move, and which is gone.
GONE = 5
GROUP, WORKER, HELD_BACK = "billing", "invoice-worker", 3
_CONFIG = {
    "cluster.events.enable": "true",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "replica.lag.time.max.ms": "1500",
}
_RECORDS = 200


@dataclass(frozen=True)
class BadDay:
    """The cluster, and what no page has to be asked for."""

    cluster: Cluster
    full_directory: str


@contextmanager
def bad_day(directory: Path) -> Iterator[BadDay]:
    """Let all of it go wrong; yield when it has."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(str(directory / "cluster"), 5, config=_CONFIG))
        _create_topics(cluster)
        consumer = _consumer(cluster)
        stack.callback(consumer.close)
        _place_internal_topics(cluster)
        _lose_a_leader(cluster)
        full = cluster.fill_log_dir(FULL)
        _produce(cluster, PHOTOS, acks="1")
        cluster.on_request("Fetch").from_brokers(LAGGARD, GONE).disconnect()
        _produce(cluster, ORDERS)
        _commit(consumer)
        with BlockingClient(cluster.bootstrap) as client:
            client.reassign({Place(ARCHIVE, 0): (1, GONE)})
        cluster.kill(GONE)
        cluster.wait_for(
            lambda status: all(
                LAGGARD not in each.isr for each in status.partitions if each.topic == ORDERS
            ),
            timeout=_LIMIT_S,
        )
        yield BadDay(cluster, full)


def _create_topics(cluster: Cluster) -> None:
    replicas = {0: [1, 2, 3], 1: [3, 1, 2], 2: [1, 3, 2], 3: [LEADER_OF_THREE, 2, 1]}
    cluster.create_topic(ORDERS, replicas=replicas)
    cluster.create_topic(ARCHIVE, replicas={0: [1, 3]})
    cluster.create_topic(FLIGHTS, replicas={number: [DEAD, 1, 3] for number in range(3)})
    cluster.create_topic(PHOTOS, replicas={0: [FULL, 1, 3]})
    for topic in (ORDERS, ARCHIVE, FLIGHTS):
        _produce(cluster, topic)


def _produce(cluster: Cluster, topic: str, acks: str = "all") -> None:
    configuration = {"bootstrap.servers": cluster.bootstrap, "acks": acks, "log_level": 0}
    producer = Producer({**configuration, "message.timeout.ms": 1000 * _LIMIT_S})
    for number in range(_RECORDS):
        for partition in range(4 if topic == ORDERS else 1):
            producer.produce(topic, b"record %d" % number, partition=partition)
    assert producer.flush(_LIMIT_S) == 0


def _consumer(cluster: Cluster) -> Consumer:
    """A member of the group with all partitions, which goes on to live."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": GROUP,
            "client.id": WORKER,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([ORDERS])
    limit = time.monotonic() + _LIMIT_S
    while not consumer.assignment():
        assert time.monotonic() < limit, "the group assigns no partition"
        consumer.poll(0.1)
    return consumer


def _place_internal_topics(cluster: Cluster) -> None:
    """Move offsets and events away from the brokers whose trouble would hide both."""
    healthy = (1, 3, LAGGARD)
    with BlockingClient(cluster.bootstrap) as client:
        topics = client.metadata([CONSUMER_OFFSETS, CLUSTER_EVENTS])
        targets = {tp: healthy for tp, _ in topics.all_partitions()}
        assert len(targets) == 1 + int(_CONFIG["offsets.topic.num.partitions"])
        client.reassign(targets)
        limit = time.monotonic() + _LIMIT_S
        while client.reassignments().under_way:
            assert time.monotonic() < limit, "the internal topics do not reach their brokers"
            time.sleep(0.1)
        client.elect_leaders(ElectionType.PREFERRED, list(targets))


def _commit(consumer: Consumer) -> None:
    """Commit all but most of one partition as read."""
    offsets = [
        TopicPartition(ORDERS, number, 10 if number == HELD_BACK else 2 * _RECORDS)
        for number in range(4)
    ]
    consumer.commit(offsets=offsets, asynchronous=False)


def _lose_a_leader(cluster: Cluster) -> None:
    cluster.kill(DEAD)
    cluster.wait_for(
        lambda status: all(each.leader not in (-1, DEAD) for each in status.partitions),
        timeout=_LIMIT_S,
    )
    cluster.start(DEAD)
    cluster.wait_for(under_replicated=0, timeout=_LIMIT_S)


def main() -> None:
    """Show the bad day until a line or the end of the input comes."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        bad_day(Path(scratch)) as day,
        running_console(day.cluster.bootstrap) as address,
    ):
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        sys.stdin.readline()


if __name__ == "__main__":
    main()
