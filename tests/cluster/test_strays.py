"""Topics whose nodes somebody removes by mistake: set aside at once, listed, restored, deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.cluster.conftest import NewStore, eventually
from tests.support.cli import run

from tidelog.cli import stores
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.metadata.layout import topic_path
from tidelog.metadata.store import ANY_VERSION, Create, Delete, MetadataStore, Op
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

RECORDS = [NewRecord(None, b"%d" % number, 1) for number in range(300)]
Tree = dict[str, bytes]


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, new_store: NewStore
) -> Iterator[LocalCluster]:
    """Three brokers; their store is edited from outside."""
    directory = str(tmp_path_factory.mktemp("strays") / "cluster")
    config = {"auto.create.topics.enable": "false"}
    made = LocalCluster(directory, 3, config=config, store=new_store())
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap, timeout_ms=20_000) as made:
        yield made


async def read(store: MetadataStore, path: str, found: Tree) -> None:
    node = await store.get(path)
    assert node is not None, path
    found[path] = node.data
    for name in await store.children(path) or []:
        await read(store, f"{path}/{name}", found)


def edit(cluster: LocalCluster, work: Callable[[MetadataStore], Awaitable[object]]) -> None:
    async def session() -> None:
        with stores._named(cluster.directory, 18.0) as named:
            async with stores._opened(named) as store:
                await work(store)

    asyncio.run(session())


def remove_nodes(cluster: LocalCluster, topic: str) -> Tree:
    """Remove a topic's nodes, all of them; returns what they held."""
    found: Tree = {}

    async def work(store: MetadataStore) -> None:
        await read(store, topic_path(topic), found)
        ops: list[Op] = [Delete(path, ANY_VERSION) for path in reversed(found)]
        await store.transact(ops)

    edit(cluster, work)
    return found


def put_back(cluster: LocalCluster, nodes: Tree) -> None:
    async def work(store: MetadataStore) -> None:
        await store.transact([Create(path, data) for path, data in nodes.items()])

    edit(cluster, work)


def made(client: BlockingClient, name: str, *replicas: int) -> TopicPartition:
    client.create_topic(name, assignment={0: replicas})
    client.await_topic(name, len(replicas))
    tp = TopicPartition(name, 0)
    assert client.produce(tp, build_batch(RECORDS)) == 0
    return tp


def strays_of(client: BlockingClient, tp: TopicPartition) -> list[int]:
    return [
        broker_id
        for broker_id in client.metadata([]).brokers
        for stray in client.list_strays(broker_id)
        if stray.tp == tp
    ]


def removed_by_mistake(
    cluster: LocalCluster, client: BlockingClient, tp: TopicPartition, replicas: list[int]
) -> Tree:
    nodes = remove_nodes(cluster, tp.topic)
    eventually(lambda: strays_of(client, tp) == replicas, "the strays")
    eventually(lambda: client.brokers_knowing(tp.topic) == [], "metadata without the topic")
    return nodes


def restored(monkeypatch: pytest.MonkeyPatch, cluster: LocalCluster, *words: str) -> bool:
    return run(monkeypatch, "strays", "restore", *words, "-b", cluster.bootstrap) == 0


def test_nodes_removed_by_mistake_and_put_back_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    cluster: LocalCluster,
    client: BlockingClient,
) -> None:
    tp = made(client, "flights", 1, 2, 3)
    nodes = removed_by_mistake(cluster, client, tp, [1, 2, 3])
    words = ("-b", cluster.bootstrap)
    assert run(monkeypatch, "strays", "list", "-o", "json", *words) == 0
    listed = json.loads(capfd.readouterr().out)
    assert [(one["broker"], one["topic"], one["held"]) for one in listed] == [
        (1, "flights", False),
        (2, "flights", False),
        (3, "flights", False),
    ]
    assert all(one["size_bytes"] > 0 and one["topic_id"] for one in listed)
    assert all(one["delete_at_ms"] == one["set_aside_ms"] + 86_400_000 for one in listed)
    assert run(monkeypatch, "strays", "list", *words) == 0
    assert "flights-0" in capfd.readouterr().out

    assert not restored(monkeypatch, cluster, "flights")
    assert "bring its metadata back" in capfd.readouterr().err
    put_back(cluster, nodes)
    eventually(lambda: client.brokers_knowing("flights") == [1, 2, 3], "the topic's metadata")
    eventually(lambda: restored(monkeypatch, cluster, "flights"), "the replica")
    topic = client.await_topic("flights", 3)
    assert topic.partitions[0].leader in (1, 2, 3)
    assert client.list_offsets({tp: -1})[tp].offset == len(RECORDS)
    assert client.produce(tp, build_batch(RECORDS)) == len(RECORDS)

    left = strays_of(client, tp)
    assert len(left) == 2
    assert run(monkeypatch, "strays", "delete", "flights", *words) == 2
    assert "--yes" in capfd.readouterr().err
    assert run(monkeypatch, "strays", "delete", "flights", "--yes", *words) == 0
    assert strays_of(client, tp) == []


def test_a_stray_of_another_topic_id_and_one_with_a_successor_stay_aside(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    cluster: LocalCluster,
    client: BlockingClient,
) -> None:
    tp = made(client, "again", 2)
    nodes = removed_by_mistake(cluster, client, tp, [2])
    made(client, "again", 2)
    assert not restored(monkeypatch, cluster, "again")
    assert "not the same topic" in capfd.readouterr().err
    client.delete_topic("again")
    eventually(lambda: client.brokers_knowing("again") == [], "the deletion")

    # The same id, no state: the controller has made an empty replica, which takes records.
    node = {topic_path("again"): nodes[topic_path("again")]}
    put_back(cluster, node)
    client.await_topic("again", 1)
    assert client.produce(tp, build_batch(RECORDS[:7])) == 0
    assert not restored(monkeypatch, cluster, "again")
    assert "offsets 0 to 7, the stray 0 to 300" in capfd.readouterr().err
    assert strays_of(client, tp) == [2]
    words = ("-b", cluster.bootstrap)
    assert run(monkeypatch, "strays", "delete", "--all-held", "--yes", *words) == 1
    assert "no stray is held" in capfd.readouterr().err


def test_a_stray_takes_the_place_of_an_empty_leader(
    monkeypatch: pytest.MonkeyPatch, cluster: LocalCluster, client: BlockingClient
) -> None:
    tp = made(client, "emptied", 3, 1)
    nodes = removed_by_mistake(cluster, client, tp, [1, 3])
    put_back(cluster, {topic_path("emptied"): nodes[topic_path("emptied")]})
    client.await_topic("emptied", 2)
    assert client.list_offsets({tp: -1})[tp].offset == 0
    eventually(lambda: restored(monkeypatch, cluster, "emptied:0"), "the replica")
    client.await_topic("emptied", 2)
    eventually(lambda: client.list_offsets({tp: -1})[tp].offset == len(RECORDS), "the records")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("restore",), 2, "which?"),
        (("restore", "nothing"), 1, "there is no stray 'nothing'"),
        (("delete",), 2, "name strays, or give --all-held"),
        (("delete", "x", "--all-held"), 2, "name strays, or give --all-held"),
        (("list", "--broker", "9"), 1, "there is no live broker 9; live are 1, 2, 3"),
        (("restore", "x-0." + "0" * 32 + "-stray"), 1, "there is no stray"),
    ],
)
def test_what_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    cluster: LocalCluster,
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    assert run(monkeypatch, "strays", *words, "-b", cluster.bootstrap) == code
    assert message in capfd.readouterr().err
