"""Our nodes in ZooKeeper beside those of a real Kafka 3.9 broker: the same paths, the same JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cluster.broker_processes import KafkaBroker, require_kafka
from tests.support.cluster.zookeepers import start_server

from tidelog.local import LocalCluster
from tidelog.local.ports import free_ports
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.metadata.paths import join
from tidelog.metadata.store import NO_OWNER, Node
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.stores.zookeeper import ZookeeperStore
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import parse_servers

#: Requests to add, to remove and to reassign partitions are the design's own (V7, R12, R20). So is
#: what shows that a store went back (E8).
OURS_ALONE = (
    "/brokers/stamps",
    "/brokers/stamps/1",
    "/admin/partitions_add",
    "/admin/partitions_remove",
    "/admin/partitions_reassigned",
    "/admin/reassignment_requests",
    "/admin/reassignments",
)
#: What Kafka has and we have not, or not yet: security, features, and its migration to KRaft.
KAFKAS_ALONE = ("/kafka-acl", "/delegation_token", "/feature", "/migration", "/log_dir_event")
#: Extra keys of ours.
OUR_KEYS = {
    "/brokers/topics/T/partitions/N/state": {"isr_epochs", "last_leader", "elr", "elr_epochs"},
    "/brokers/ids/N": {"previous_broker_epoch", "earlier_broker_epochs", "reports_log_ends"},
}

Nodes = dict[str, Node]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    started = start_server(tmp_path_factory.mktemp("zookeeper"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def nodes(server: LocalZookeeper, tmp_path_factory: pytest.TempPathFactory) -> tuple[Nodes, Nodes]:
    """Kafka's nodes and ours, each after the same requests."""
    require_kafka()
    path = tmp_path_factory.mktemp("nodes")
    store = f"zookeeper://{server.address}"
    asyncio.run(create_chroot(parse_servers(f"{store}/kafka")))
    asyncio.run(create_chroot(parse_servers(f"{store}/ours")))
    [port] = free_ports(1)
    keys = {"offsets.topic.replication.factor": "1"}
    broker = KafkaBroker(path / "kafka", 1, port, f"{server.address}/kafka", keys)
    try:
        broker.start()
        work(broker.address)
        kafkas = asyncio.run(read(f"{store}/kafka"))
    finally:
        broker.kill()
    with LocalCluster(
        str(path / "ours"), 1, store=f"{store}/ours", end_with_program=True
    ) as cluster:
        work(cluster.bootstrap)
        ours = asyncio.run(read(f"{store}/ours"))
    return kafkas, ours


def work(bootstrap: str) -> None:
    """What leaves nodes: topics, their configuration, a producer's id."""
    with BlockingClient(bootstrap, timeout_ms=30_000) as client:
        client.create_topic("flights", 2, 1, {"retention.ms": "3600000"})
        client.await_topic("flights")
        client.create_topic("plain", 1, 1, {})
        client.await_topic("plain")
        client.init_producer_id()


async def read(text: str) -> Nodes:
    """All nodes below a chroot."""
    store = ZookeeperStore(parse_servers(text), asyncio.get_running_loop(), 30_000)
    await store.open()
    found: Nodes = {}
    try:
        level = ["/"]
        while level:
            names = await asyncio.gather(*[store.children(path) for path in level])
            level = [
                join(path, name)
                for path, below in zip(level, names, strict=True)
                for name in below or ()
            ]
            for path, node in zip(level, await store.get_many(level), strict=True):
                assert node is not None
                found[path] = node
        return found
    finally:
        await store.close()


def kind_of(path: str) -> str:
    """The path with names and numbers of this one cluster taken out."""
    parts = path.split("/")
    if parts[1:3] == ["brokers", "topics"] and len(parts) > 3:
        parts[3] = "T"
    return "/".join("N" if part.isdigit() else part for part in parts)


def is_kafkas_alone(path: str) -> bool:
    return path.startswith(KAFKAS_ALONE)


def shape(value: Any) -> Any:
    """Types of a JSON value, by key."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


def is_probe(path: str) -> bool:
    """The topic by which a local cluster finds out whether it can be written to, and its trace."""
    return "tidelog" in path or path.startswith("/config/changes/")


def test_every_path_of_kafka_is_there_and_no_other(nodes: tuple[Nodes, Nodes]) -> None:
    kafkas, ours = nodes
    theirs = {path for path in kafkas if not is_kafkas_alone(path) and not is_probe(path)}
    own = {path for path in ours if not is_kafkas_alone(path) and not is_probe(path)}
    assert own == {*theirs, *OURS_ALONE}


def test_nodes_live_with_sessions_where_kafkas_do(nodes: tuple[Nodes, Nodes]) -> None:
    ephemeral = [
        sorted(path for path, node in each.items() if node.stat.ephemeral_owner != NO_OWNER)
        for each in nodes
    ]
    assert ephemeral[0] == ephemeral[1] == ["/brokers/ids/1", "/controller"]


def test_json_has_kafkas_keys_and_types(nodes: tuple[Nodes, Nodes]) -> None:
    kafkas, ours = nodes
    compared = 0
    for path, node in kafkas.items():
        if is_kafkas_alone(path) or is_probe(path):
            continue
        if not node.data.startswith(b"{"):
            assert node.data.isdigit() == ours[path].data.isdigit(), path
            continue
        compared += 1
        theirs, own = json.loads(node.data), json.loads(ours[path].data)
        extra = OUR_KEYS.get(kind_of(path), set())
        assert {key: each for key, each in shape(own).items() if key not in extra} == shape(
            theirs
        ), path
        assert own.get("version") == theirs.get("version"), path
    assert compared >= 9


def test_values_that_do_not_depend_on_the_moment_are_equal(nodes: tuple[Nodes, Nodes]) -> None:
    kafkas, ours = nodes
    moments = {"timestamp", "topic_id", "id", "port", "endpoints"}
    for path, node in kafkas.items():
        if node.data.startswith(b"{") and path in ours and not is_kafkas_alone(path):
            theirs, own = json.loads(node.data), json.loads(ours[path].data)
            extra = moments | OUR_KEYS.get(kind_of(path), set())
            assert {key: each for key, each in own.items() if key not in extra} == {
                key: each for key, each in theirs.items() if key not in extra
            }, path
