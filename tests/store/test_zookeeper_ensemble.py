"""The store on ZooKeeper when servers die: one that comes back, one of three that leads."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster.zookeepers import ensemble, start_server
from tests.support.store.clusters import ZookeeperCluster

from tidelog.local.zookeeper import LocalZookeeper
from tidelog.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Create,
    MetadataStore,
    OutcomeUnknown,
    SessionEvent,
    SetData,
    StoreUnavailable,
    TransactionFailed,
    WatchEvent,
)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[LocalZookeeper]]:
    """Three servers that serve as one."""
    members = ensemble(tmp_path)
    try:
        for member in members:
            member.spawn()
        for member in members:
            member.await_serving()
        yield members
    finally:
        for member in members:
            member.kill()


async def count_up(store: MetadataStore, path: str, until: asyncio.Event) -> int:
    """Raise a number one by one, reading back whatever is unknown; returns how often it did."""
    done = 0
    node = await store.get(path)
    assert node is not None
    version = node.stat.version
    while not until.is_set():
        try:
            await store.transact([SetData(path, str(done + 1).encode(), version)])
            done, version = done + 1, version + 1
        except (StoreUnavailable, OutcomeUnknown):
            node = await store.get(path)
            assert node is not None and node.stat.version in (version, version + 1)
            if node.stat.version == version + 1:
                done, version = done + 1, version + 1
        except TransactionFailed as failure:
            raise AssertionError(f"somebody else wrote {path}") from failure
    return done


@pytest.mark.rule("S2")
@pytest.mark.rule("S3")
def test_sessions_and_writes_outlive_the_leader(servers: list[LocalZookeeper]) -> None:
    cluster = ZookeeperCluster(",".join(member.address for member in servers))

    async def story() -> None:
        stores = [await cluster.open(20_000) for _ in range(4)]
        heard: list[SessionEvent] = []
        for store in stores:
            store.on_session(heard.append)
        ids = [store.session_id for store in stores]
        await stores[0].transact([Create(f"/{number}", b"0") for number in range(len(stores))])
        made = [
            (await store.transact([Create(f"/e{number}", b"", ephemeral=True)]))[0].stat
            for number, store in enumerate(stores)
        ]
        seen: list[WatchEvent] = []
        for store in stores:
            await store.get("/told", seen.append)
        over = asyncio.Event()
        counts = [
            asyncio.create_task(count_up(store, f"/{number}", over))
            for number, store in enumerate(stores)
        ]
        leader = next(member for member in servers if member.mode() == "leader")
        leader.kill()
        await cluster.until(lambda: any(m.mode() == "leader" for m in servers if m is not leader))
        before = [await store.get(f"/{number}") for number, store in enumerate(stores)]
        await asyncio.sleep(0.3)
        over.set()
        for number, (store, count) in enumerate(zip(stores, counts, strict=True)):
            done = await count
            node = await store.get(f"/{number}")
            earlier = before[number]
            assert node is not None and earlier is not None
            assert node.data == str(done).encode() and node.stat.version == done
            assert done > earlier.stat.version
        assert [store.session_id for store in stores] == ids
        assert SessionEvent.EXPIRED not in heard
        nodes = await stores[0].get_many([f"/e{number}" for number in range(len(stores))])
        assert [node.stat if node else None for node in nodes] == made
        await stores[0].transact([Create("/told", b"")])
        await cluster.until(lambda: len(seen) == len(stores))
        with pytest.raises(TransactionFailed) as raised:
            await stores[1].transact([SetData("/0", b"", 0)])
        assert isinstance(raised.value.error, BadVersion)

    cluster.run(story())


@pytest.mark.rule("S3")
def test_without_a_quorum_brokers_wait_and_their_sessions_go_on_after_it(
    servers: list[LocalZookeeper],
) -> None:
    cluster = ZookeeperCluster(",".join(member.address for member in servers))

    async def story() -> None:
        store = await cluster.open(20_000)
        heard: list[SessionEvent] = []
        store.on_session(heard.append)
        session_id = store.session_id
        await store.transact([Create("/e", b"", ephemeral=True)])
        for member in servers[1:]:
            member.send(signal.SIGSTOP)
        write = asyncio.create_task(store.transact([SetData("/e", b"x", ANY_VERSION)]))
        await cluster.until(lambda: SessionEvent.SUSPENDED in heard)
        for member in servers[1:]:
            member.send(signal.SIGCONT)
        with contextlib.suppress(OutcomeUnknown, StoreUnavailable):
            await write
        while True:
            try:
                await store.transact([SetData("/e", b"y", ANY_VERSION)])
                break
            except (OutcomeUnknown, StoreUnavailable):
                continue
        node = await store.get("/e")
        assert node is not None and node.data == b"y"
        assert node.stat.ephemeral_owner == session_id == store.session_id
        assert SessionEvent.EXPIRED not in heard

    cluster.run(story())


def test_a_server_that_was_killed_and_started_again_has_everything(tmp_path: Path) -> None:
    server = start_server(tmp_path / "server")
    cluster = ZookeeperCluster(server.address)

    async def story() -> None:
        store = await cluster.open(20_000)
        heard: list[SessionEvent] = []
        store.on_session(heard.append)
        seen: list[WatchEvent] = []
        [made] = await store.transact([Create("/e", b"x", ephemeral=True)])
        await store.get("/later", seen.append)
        server.kill()
        await cluster.until(lambda: heard == [SessionEvent.SUSPENDED])
        read = asyncio.create_task(store.get("/e"))
        await asyncio.get_running_loop().run_in_executor(None, server.start)
        node = await read
        assert node is not None and (node.data, node.stat) == (b"x", made.stat)
        await store.transact([Create("/later", b"")])
        assert [event.path for event in seen] == ["/later"]
        assert heard == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]

    try:
        cluster.run(story())
    finally:
        server.kill()
