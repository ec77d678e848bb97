"""Real Kafka 3.9 brokers of both protocol levels in our cluster, and ours of both in theirs (A12).

At level 2.6 a Kafka broker writes the state nodes of its partitions itself, as ours does. Brokers 1
and 2 are Kafka's, broker 3 is ours; the first to start is the controller.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_kafka_peers import (
    OURS,
    Peers,
    await_that,
    controller_of,
    produce,
    values_of,
)
from tests.support.cluster.broker_processes import BrokerProcess, require_kafka
from tests.support.cluster.values import read_values
from tests.support.cluster.zookeepers import start_server

from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import Node
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.stores.zookeeper import ZookeeperStore
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import parse_servers

KEY = "inter.broker.protocol.version"


@contextmanager
def a_cluster(path: Path, controller: int, levels: Mapping[int, str]) -> Iterator[Peers]:
    """Three brokers of these levels; `controller` starts first."""
    require_kafka()
    server = start_server(path / "zookeeper")
    chroot = f"{server.address}/kafka"
    asyncio.run(create_chroot(parse_servers(f"zookeeper://{chroot}")))
    made = Peers(path, chroot, levels)
    try:
        made.brokers[controller].start()
        for number, broker in made.brokers.items():
            if number != controller:
                broker.spawn()
        for broker in made.brokers.values():
            broker.await_up()
            await_that(partial(all_known, broker), bool, "three brokers")
        assert controller_of(made.brokers[OURS]) == controller
        yield made
    finally:
        for broker in made.brokers.values():
            broker.kill()
        server.stop()


def all_known(broker: BrokerProcess) -> bool:
    with BlockingClient(broker.address, timeout_ms=5_000) as client:
        return sorted(client.metadata().brokers) == [1, 2, 3]


def node_of(peers: Peers, tp: TopicPartition) -> dict[str, Any]:
    """The state node's JSON, as it is."""

    async def read() -> Node | None:
        servers = parse_servers(f"zookeeper://{peers.zookeeper}")
        store = ZookeeperStore(servers, asyncio.get_running_loop(), 30_000)
        await store.open()
        try:
            return await store.get(layout.partition_state_path(tp))
        finally:
            await store.close()

    node = asyncio.run(read())
    assert node is not None
    value: dict[str, Any] = json.loads(node.data)
    return value


def shrink_and_expand(peers: Peers, tp: TopicPartition, leader: int, paused: int) -> None:
    """A follower is paused until its leader has taken it out of the ISR, and comes back.

    No controller takes part in it: the leader epoch stays.
    """
    others = sorted({1, 2, 3} - {paused})
    before = node_of(peers, tp)
    peers.brokers[paused].pause()
    produce(peers.bootstrap, tp, values_of("while one is away"))
    peers.await_state(tp, leader, others, asked=others)
    during = node_of(peers, tp)
    assert (during["leader_epoch"], sorted(during["isr"])) == (before["leader_epoch"], others)
    peers.brokers[paused].resume()
    peers.await_state(tp, leader, [1, 2, 3], asked=others)
    assert node_of(peers, tp)["leader"] == leader


def set_level(broker: BrokerProcess, level: str) -> None:
    """Another level from the next start on."""
    lines = broker.properties.read_text().splitlines()
    kept = [line for line in lines if not line.startswith(f"{KEY}=")]
    broker.properties.write_text("\n".join([*kept, f"{KEY}={level}"]) + "\n")


def move(peers: Peers, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
    """Reassign a partition whose leader stays."""
    with BlockingClient(peers.bootstrap, timeout_ms=30_000) as client:
        client.reassign({tp: replicas})
        await_that(client.list_reassignments, lambda seen: not seen, f"{tp} moved")
    peers.await_in_sync(tp, replicas)


def check_nothing_was_misread(peers: Peers) -> None:
    errors = [line for line in peers.brokers[OURS].wrote().splitlines() if " ERROR " in line]
    assert not errors
    for number in (1, 2):
        wrote = peers.brokers[number].wrote()
        for word in ("SchemaException", "BufferUnderflow", "InvalidRequest", "UnsupportedVersion"):
            assert word not in wrote, peers.brokers[number].last_lines()


@pytest.mark.rule("A12", "A13")
def test_kafkas_leaders_of_both_levels_change_isrs_under_our_controller(tmp_path: Path) -> None:
    with a_cluster(tmp_path, OURS, {1: "2.6", 2: "3.9", OURS: "3.9"}) as peers:
        first, second, ours = (TopicPartition(f"led-by-{number}", 0) for number in (1, 2, 3))
        replicas = {first: (1, 2, 3), second: (2, 1, 3), ours: (3, 1, 2)}
        for tp, assigned in replicas.items():
            peers.make_topic(tp.topic, assigned)
            produce(peers.bootstrap, tp, values_of("before"))
        assert "isr_epochs" in node_of(peers, first)
        shrink_and_expand(peers, first, leader=1, paused=2)
        assert "isr_epochs" not in node_of(peers, first), "Kafka wrote it, and drops our keys"
        shrink_and_expand(peers, second, leader=2, paused=1)
        # A follower that sends no broker epoch: it fetches at level 2.6.
        shrink_and_expand(peers, ours, leader=OURS, paused=1)
        move(peers, first, (1, 3))
        # Up, and down again.
        for level in ("3.9", "2.6"):
            peers.brokers[1].stop()
            set_level(peers.brokers[1], level)
            peers.brokers[1].start()
            peers.await_in_sync(second, (1, 2, 3))
            peers.await_in_sync(ours, (1, 2, 3))
            shrink_and_expand(peers, second, leader=2, paused=1)
        expected = values_of("before") + 3 * values_of("while one is away")
        assert read_values(peers.bootstrap, second) == expected
        peers.check_same_bytes(first, (1, 3))
        peers.check_same_bytes(second, (2, 1, 3))
        peers.check_same_bytes(ours, (3, 1, 2))
        check_nothing_was_misread(peers)


@pytest.mark.rule("A12", "A13")
def test_our_leader_writes_itself_in_kafkas_cluster(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 1, {1: "3.9", 2: "2.6", OURS: "2.6"}) as peers:
        ours, second = TopicPartition("led-by-us", 0), TopicPartition("led-by-2", 0)
        peers.make_topic(ours.topic, (3, 1, 2))
        peers.make_topic(second.topic, (2, 1, 3))
        for tp in (ours, second):
            produce(peers.bootstrap, tp, values_of("before"))
        shrink_and_expand(peers, ours, leader=OURS, paused=2)
        assert len(node_of(peers, ours)["isr_epochs"]) == 3
        shrink_and_expand(peers, second, leader=2, paused=OURS)
        # Kafka's controller completes a reassignment on our notification.
        moved = TopicPartition("moved", 0)
        peers.make_topic(moved.topic, (3, 1))
        produce(peers.bootstrap, moved, values_of("before the move"))
        move(peers, moved, (3, 2))
        peers.brokers[OURS].stop()
        set_level(peers.brokers[OURS], "3.9")
        peers.brokers[OURS].start()
        peers.await_in_sync(ours, (1, 2, 3))
        peers.elect_preferred(ours)
        peers.await_state(ours, OURS, [1, 2, 3])
        shrink_and_expand(peers, ours, leader=OURS, paused=2)
        peers.check_same_bytes(ours, (3, 1, 2))
        peers.check_same_bytes(second, (2, 1, 3))
        peers.check_same_bytes(moved, (3, 2))
        check_nothing_was_misread(peers)
