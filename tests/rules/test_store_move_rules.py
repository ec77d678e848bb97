"""Rule S6: a cluster's metadata moves between stores while no broker lives."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.store.clusters import SqliteCluster

from tidelog.core.types import PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Create, MetadataStore, SetData
from tidelog.runtime.stores import transfer
from tidelog.runtime.stores.transfer import TransferError

PARTITION = TopicPartition("flights", 0)
STATE = PartitionState(
    leader=1,
    leader_epoch=3,
    isr=(1, 2),
    controller_epoch=1,
    partition_epoch=0,
    isr_epochs=(57, 58),
)


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[SqliteCluster, SqliteCluster]]:
    yield SqliteCluster(tmp_path / "source"), SqliteCluster(tmp_path / "target")


async def fill(store: MetadataStore) -> None:
    """A cluster with one topic, and some history."""
    for path in layout.PERSISTENT_ROOTS:
        await store.transact([Create(path, b"")])
    await store.transact([Create(layout.CLUSTER_ID, layout.encode_cluster_id("here"))])
    await store.transact([Create(layout.CONTROLLER_EPOCH, b"7")])
    topic = layout.topic_path(PARTITION.topic)
    await store.transact(
        [
            Create(topic, b'{"version":3,"partitions":{"0":[1,2]}}'),
            Create(layout.topic_partitions_path(PARTITION.topic), b""),
            Create(layout.partition_path(PARTITION), b""),
            Create(layout.partition_state_path(PARTITION), layout.encode_partition_state(STATE)),
            Create(layout.CONFIG_CHANGE_PREFIX, b"told", sequence=True),
            Create("/consumers/odd", b"\xff\x00"),
        ]
    )
    for _ in range(50):
        await store.transact([SetData(topic, b"[]", ANY_VERSION)])


@pytest.mark.rule("S6")
def test_everything_but_lives_and_notifications_arrives_under_higher_transaction_ids(
    clusters: tuple[SqliteCluster, SqliteCluster],
) -> None:
    source, target = clusters

    async def save() -> list[str]:
        store = await source.open()
        await fill(store)
        return list(transfer.to_lines(await transfer.read_tree(store, "source")))

    async def load(lines: list[str]) -> None:
        store = await target.open()
        tree = transfer.from_lines(lines, "export")
        assert tree.zxid > 50
        assert await transfer.write_tree(store, tree, "target") == len(tree.nodes)
        again = await transfer.read_tree(store, "target")
        assert transfer.compare(tree, again) == []
        assert again.cluster_id == "here"
        node = await store.get(layout.partition_state_path(PARTITION))
        assert node is not None and node.stat.czxid > tree.zxid
        state = layout.decode_partition_state("", node.data, node.stat)
        assert state == dataclasses.replace(STATE, isr_epochs=None, partition_epoch=0)
        assert await store.children(layout.CONFIG_CHANGES) == []
        odd = await store.get("/consumers/odd")
        assert odd is not None and odd.data == b"\xff\x00"
        assert "tidelog-import" not in (await store.children("/") or [])

    target.run(load(source.run(save())))


@pytest.mark.rule("S6")
def test_a_cluster_with_live_brokers_is_neither_read_nor_written(
    clusters: tuple[SqliteCluster, SqliteCluster],
) -> None:
    source, _ = clusters

    async def story() -> None:
        broker, store = await source.open(), await source.open()
        await fill(store)
        tree = await transfer.read_tree(store, "source")
        await broker.transact([Create(layout.broker_path(4), b"", ephemeral=True)])
        with pytest.raises(TransferError, match="source: brokers 4 are registered; stop them all"):
            await transfer.read_tree(store, "source")
        with pytest.raises(TransferError, match="brokers 4 are registered"):
            await transfer.write_tree(store, tree, "source")
        await broker.close()
        with pytest.raises(TransferError, match="holds a cluster already"):
            await transfer.write_tree(store, tree, "source")

    source.run(story())


@pytest.mark.rule("S6")
def test_ids_that_cannot_be_reached_are_refused_before_anything_is_written(
    clusters: tuple[SqliteCluster, SqliteCluster],
) -> None:
    source, target = clusters

    async def save() -> transfer.SavedTree:
        store = await source.open()
        await fill(store)
        return await transfer.read_tree(store, "source")

    async def load(tree: transfer.SavedTree) -> None:
        store = await target.open()
        far = dataclasses.replace(tree, zxid=1 << 40)
        with pytest.raises(TransferError, match="its transaction ids are at"):
            await transfer.write_tree(store, far, "target")
        assert await store.children("/") == []

    target.run(load(source.run(save())))


@pytest.mark.rule("S6")
def test_a_store_in_which_brokers_have_only_registered_is_imported_into(
    clusters: tuple[SqliteCluster, SqliteCluster],
) -> None:
    source, target = clusters

    async def save() -> transfer.SavedTree:
        store = await source.open()
        await fill(store)
        return await transfer.read_tree(store, "source")

    async def load(tree: transfer.SavedTree) -> None:
        store = await target.open()
        for path in layout.PERSISTENT_ROOTS:
            await store.transact([Create(path, b"")])
        await store.transact([Create(layout.CLUSTER_ID, layout.encode_cluster_id("other"))])
        await store.transact([Create(layout.CONTROLLER_EPOCH, b"2")])
        await store.transact([Create(layout.broker_stamp_path(1), layout.encode_stamp())])
        await transfer.write_tree(store, tree, "target")
        again = await transfer.read_tree(store, "target")
        assert (again.cluster_id, transfer.compare(tree, again)) == ("here", [])

    target.run(load(source.run(save())))


@pytest.mark.rule("S6")
def test_a_backup_is_of_one_moment_while_brokers_write(
    clusters: tuple[SqliteCluster, SqliteCluster],
) -> None:
    """Two nodes change together; a reading that meets the change in between is repeated."""
    source, _ = clusters

    async def story() -> None:
        broker = await source.open()
        store: Any = await source.open()
        await fill(store)
        await broker.transact([Create(layout.broker_path(4), b"", ephemeral=True)])
        first, last = "/config/brokers/1", "/consumers/last"
        await broker.transact([Create(first, b"0"), Create(last, b"0")])
        changes = iter((b"1", b"2", b"3"))
        read = store.get_many

        async def change_between(paths: Sequence[str]) -> Any:
            """Both nodes change behind each reading of the second one."""
            found = await read(paths)
            data = next(changes, None) if last in paths else None
            if data is not None:
                await broker.transact(
                    [SetData(first, data, ANY_VERSION), SetData(last, data, ANY_VERSION)]
                )
            return found

        store.get_many = change_between
        tree = await transfer.read_running_tree(store, "source")
        found = {node.path: node.data for node in tree.nodes}
        assert (found[first], found[last]) == (b"3", b"3")
        assert layout.broker_path(4) not in found
        registration = await broker.get(layout.broker_path(4))
        assert registration is not None and tree.zxid >= registration.stat.czxid

    source.run(story())


@pytest.mark.rule("S6")
def test_a_backup_of_a_store_that_never_rests_is_given_up(
    clusters: tuple[SqliteCluster, SqliteCluster],
) -> None:
    source, _ = clusters

    async def story() -> None:
        store: Any = await source.open()
        await fill(store)
        read = store.get_many

        async def change(paths: Sequence[str]) -> Any:
            await store.transact([SetData(layout.CONTROLLER_EPOCH, b"8", ANY_VERSION)])
            return await read(paths)

        store.get_many = change
        with pytest.raises(TransferError, match="changed during each of 30 readings"):
            await transfer.read_running_tree(store, "source")

    source.run(story())


@pytest.mark.rule("E8")
def test_an_import_keeps_the_stamps_of_the_store_that_was_exported(
    clusters: tuple[SqliteCluster, SqliteCluster],
) -> None:
    source, target = clusters
    path = layout.broker_stamp_path(1)

    async def save() -> tuple[transfer.SavedTree, int]:
        store = await source.open()
        await fill(store)
        await store.transact([Create(path, layout.encode_stamp())])
        stamp = layout.decode_stamp(path, await store.get(path))
        return await transfer.read_tree(store, "source"), stamp

    async def load(tree: transfer.SavedTree, stamp: int) -> transfer.SavedTree:
        store = await target.open()
        await transfer.write_tree(store, tree, "target")
        assert layout.decode_stamp(path, await store.get(path)) == stamp
        again = await transfer.read_tree(store, "target")
        assert transfer.compare(tree, again) == []
        return again

    target.run(load(*source.run(save())))


@pytest.mark.rule("E8")
def test_an_accepted_store_has_no_mark_any_more(
    clusters: tuple[SqliteCluster, SqliteCluster],
) -> None:
    source, _ = clusters

    async def story() -> None:
        store = await source.open()
        with pytest.raises(TransferError, match="source holds no cluster"):
            await transfer.accept_older(store, "source")
        await fill(store)
        assert not await transfer.accept_older(store, "source")
        await store.transact([Create(layout.STORE_WENT_BACK, b"{}")])
        state_path = layout.partition_state_path(PARTITION)
        with pytest.raises(TransferError, match=f"{state_path} is still as in the copy"):
            await transfer.accept_older(store, "source")
        assert await store.get(layout.STORE_WENT_BACK) is not None
        elected = layout.encode_partition_state(STATE)
        await store.transact([SetData(state_path, elected, ANY_VERSION)])
        assert await transfer.accept_older(store, "source")
        assert await store.get(layout.STORE_WENT_BACK) is None

    source.run(story())


HEAD = json.dumps(
    {"format": "tidelog metadata", "version": 1, "cluster_id": "x", "zxid": 1, "nodes": 1}
)


@pytest.mark.rule("S6")
@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([], "f is empty"),
        (["{"], "f, line 1: not an export"),
        (["[]"], "f, line 1: not an export"),
        (['{"format": "tidelog metadata", "version": 2}'], "f, line 1: not an export"),
        ([HEAD], "f is incomplete: 0 nodes, 1 were exported"),
        ([HEAD, '{"path": "/a"}'], "f, line 2: not an export"),
        ([HEAD, '{"path": "a", "mzxid": 1, "data": ""}'], "'a' is not a path of a node"),
        ([HEAD, '{"path": "/a", "mzxid": 1, "base64": "?"}'], "f, line 2: not an export"),
    ],
)
def test_a_file_that_is_no_export_is_named_with_its_line(lines: list[str], wrong: str) -> None:
    with pytest.raises(TransferError) as raised:
        transfer.from_lines(lines, "f")
    assert wrong in str(raised.value)
