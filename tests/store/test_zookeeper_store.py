"""What the store on ZooKeeper does when connections break (S1, S2, S3), on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.support.store.clusters import ZookeeperCluster
from tests.support.store.cutting_proxy import LOOPBACK, CuttingProxy, proxied

from tidelog.core.errors import ConfigError
from tidelog.local.ports import free_ports
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.metadata.store import (
    Create,
    Delete,
    EventKind,
    MetadataStore,
    OutcomeUnknown,
    RequestTooLarge,
    SessionEvent,
    SessionExpired,
    SetData,
    StoreError,
    StoreUnavailable,
    WatchEvent,
)
from tidelog.runtime.stores.zookeeper import ZookeeperStore
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import Servers, parse_servers

CONNECTED, SUSPENDED, EXPIRED = (
    SessionEvent.CONNECTED,
    SessionEvent.SUSPENDED,
    SessionEvent.EXPIRED,
)


@pytest.fixture
def cluster(zookeeper: LocalZookeeper) -> ZookeeperCluster:
    return ZookeeperCluster(zookeeper.address)


class Pair:
    """A store behind a proxy, and a witness with a connection of its own."""

    def __init__(
        self,
        cluster: ZookeeperCluster,
        proxy: CuttingProxy,
        store: ZookeeperStore,
        witness: MetadataStore,
    ) -> None:
        self.cluster, self.proxy, self.store, self.witness = cluster, proxy, store, witness
        self.heard: list[SessionEvent] = []
        store.on_session(self.heard.append)

    async def hears(self, *events: SessionEvent) -> None:
        await self.cluster.until(lambda: self.heard == list(events))


@contextlib.asynccontextmanager
async def pair(cluster: ZookeeperCluster, timeout_ms: int = 3000) -> AsyncIterator[Pair]:
    direct = cluster.servers
    async with proxied(direct.addresses[0][1]) as proxy:
        through = dataclasses.replace(direct, addresses=((LOOPBACK, proxy.port),))
        witness = await cluster.open()
        store = ZookeeperStore(
            through, asyncio.get_running_loop(), timeout_ms, log=cluster.log.append
        )
        await store.open()
        cluster.stores.append(store)
        try:
            yield Pair(cluster, proxy, store, witness)
        finally:
            await store.close()


Story = Callable[[Pair], Awaitable[None]]


def told(cluster: ZookeeperCluster, story: Story, timeout_ms: int = 3000) -> None:
    async def whole() -> None:
        async with pair(cluster, timeout_ms) as both:
            await story(both)

    cluster.run(whole())


@pytest.mark.rule("S2")
def test_a_lost_answer_is_an_unknown_outcome_that_was_applied(cluster: ZookeeperCluster) -> None:
    async def story(both: Pair) -> None:
        both.proxy.swallows_answers = True
        write = asyncio.create_task(both.store.transact([Create("/a", b"x")]))
        while await both.witness.get("/a") is None:
            await asyncio.sleep(0.005)
        assert not write.done()
        both.proxy.cut()
        with pytest.raises(OutcomeUnknown, match="lost before the answer"):
            await write
        node = await both.store.get("/a")
        assert node is not None and node.data == b"x"
        await both.hears(SUSPENDED, CONNECTED)

    told(cluster, story)


@pytest.mark.rule("S2")
def test_a_lost_request_is_an_unknown_outcome_that_was_not_applied(
    cluster: ZookeeperCluster,
) -> None:
    async def story(both: Pair) -> None:
        both.proxy.swallows_requests = True
        write = asyncio.create_task(both.store.transact([Create("/a", b"x")]))
        await asyncio.sleep(0.05)
        both.proxy.cut()
        with pytest.raises(OutcomeUnknown):
            await write
        assert await both.store.get("/a") is None

    told(cluster, story)


def test_reads_in_flight_are_asked_again_in_their_order(cluster: ZookeeperCluster) -> None:
    async def story(both: Pair) -> None:
        await both.witness.transact([Create("/a", b"1"), Create("/b", b"2")])
        session_id = both.store.session_id
        both.proxy.swallows_answers = True
        reads = asyncio.gather(
            both.store.get("/a"),
            both.store.get_many(["/b", "/c"]),
            both.store.children("/"),
            both.store.get("/b", lambda event: None),
        )
        await asyncio.sleep(0.05)
        both.proxy.cut()
        one, many, names, again = await reads
        assert one is not None and one.data == b"1"
        assert many[0] == again and many[0] is not None and many[0].data == b"2"
        assert (many[1], names) == (None, ["a", "b"])
        assert both.store.session_id == session_id
        await both.hears(SUSPENDED, CONNECTED)

    told(cluster, story)


@pytest.mark.rule("S3")
def test_what_was_not_sent_waits_for_a_connection_and_is_no_unknown_outcome(
    cluster: ZookeeperCluster,
) -> None:
    async def story(both: Pair) -> None:
        [made] = await both.store.transact([Create("/e", b"", ephemeral=True)])
        await both.proxy.refuse()
        await both.hears(SUSPENDED)
        writes = [
            asyncio.create_task(both.store.transact([Create(f"/{number}", b"")]))
            for number in range(3)
        ]
        await asyncio.sleep(0.3)
        assert not any(write.done() for write in writes)
        await both.proxy.listen()
        for write in writes:
            await write
        node = await both.witness.get("/e")
        assert node is not None and node.stat == made.stat
        assert await both.witness.children("/") == ["0", "1", "2", "e"]
        await both.hears(SUSPENDED, CONNECTED)

    told(cluster, story)


@pytest.mark.rule("S3")
def test_a_store_out_of_reach_is_unavailable_and_only_a_server_says_expired(
    cluster: ZookeeperCluster,
) -> None:
    async def story(both: Pair) -> None:
        await both.store.transact([Create("/e", b"", ephemeral=True)])
        await both.proxy.refuse()
        await both.hears(SUSPENDED)
        with pytest.raises(StoreUnavailable, match="no ZooKeeper server for 600 ms"):
            await both.store.transact([Create("/a", b"")])
        while await both.witness.get("/e") is not None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert both.heard == [SUSPENDED]
        assert both.store.session_id is not None
        waiting = asyncio.create_task(both.store.transact([Create("/a", b"")]))
        await asyncio.sleep(0)
        await both.proxy.listen()
        await both.hears(SUSPENDED, EXPIRED)
        with pytest.raises(SessionExpired):
            await waiting
        with pytest.raises(SessionExpired):
            await both.store.get("/")
        assert await both.witness.get("/a") is None
        await both.store.open()
        await both.hears(SUSPENDED, EXPIRED, CONNECTED)
        await both.store.transact([Create("/a", b"")])

    told(cluster, story, timeout_ms=600)


@pytest.mark.rule("S1")
def test_changes_while_the_connection_was_gone_fire_before_later_answers(
    cluster: ZookeeperCluster,
) -> None:
    async def story(both: Pair) -> None:
        store, witness = both.store, both.witness
        paths = ["/set", "/gone", "/same", "/parent", "/same-parent", "/gone-parent"]
        await witness.transact([Create(path, b"") for path in paths])
        seen: list[WatchEvent] = []
        for path in ("/set", "/gone", "/same", "/made", "/still-missing"):
            await store.get(path, seen.append)
        for path in ("/parent", "/same-parent", "/gone-parent"):
            await store.children(path, seen.append)
        await both.proxy.refuse()
        await both.hears(SUSPENDED)
        await witness.transact(
            [
                SetData("/set", b"x", 0),
                Delete("/gone", 0),
                Create("/made", b""),
                Create("/parent/child", b""),
                Delete("/gone-parent", 0),
            ]
        )
        assert seen == []
        read = asyncio.create_task(store.get("/set"))
        await asyncio.sleep(0)
        await both.proxy.listen()
        node = await read
        assert node is not None and node.data == b"x"
        assert sorted(seen, key=lambda event: event.path) == [
            WatchEvent(EventKind.DELETED, "/gone"),
            WatchEvent(EventKind.DELETED, "/gone-parent"),
            WatchEvent(EventKind.CREATED, "/made"),
            WatchEvent(EventKind.CHILDREN, "/parent"),
            WatchEvent(EventKind.CHANGED, "/set"),
        ]
        seen.clear()
        await witness.transact(
            [
                SetData("/same", b"", 0),
                Create("/still-missing", b""),
                Create("/same-parent/child", b""),
                SetData("/set", b"", 1),
            ]
        )
        await both.cluster.until(lambda: len(seen) == 3)
        await store.get("/")
        assert [event.path for event in seen] == ["/same", "/still-missing", "/same-parent"]

    told(cluster, story)


@pytest.mark.rule("S1")
def test_thousands_of_watches_survive_a_lost_connection(cluster: ZookeeperCluster) -> None:
    async def story(both: Pair) -> None:
        seen: list[str] = []
        paths = [f"/{number:0200}" for number in range(2000)]
        await asyncio.gather(
            *[both.store.get(path, lambda event: seen.append(event.path)) for path in paths]
        )
        both.proxy.cut()
        await both.hears(SUSPENDED, CONNECTED)
        for first in range(0, len(paths), 500):
            await both.witness.transact([Create(path, b"") for path in paths[first : first + 500]])
        await both.cluster.until(lambda: len(seen) == len(paths))
        assert seen == paths

    told(cluster, story)


def test_a_server_that_falls_silent_is_left_for_another(cluster: ZookeeperCluster) -> None:
    async def story() -> None:
        (address,) = cluster.servers.addresses
        async with proxied(address[1]) as first, proxied(address[1]) as second:
            servers = dataclasses.replace(
                cluster.servers, addresses=((LOOPBACK, first.port), (LOOPBACK, second.port))
            )
            store = ZookeeperStore(servers, asyncio.get_running_loop(), 600, log=cluster.log.append)
            await store.open()
            cluster.stores.append(store)
            session_id = store.session_id
            await store.transact([Create("/a", b"")])
            silent, other = (first, second) if first.connections else (second, first)
            silent.swallows_answers = True
            await cluster.until(lambda: other.connections > 0)
            assert await store.get("/a") is not None
            assert store.session_id == session_id
            assert any("no answer for" in line for line in cluster.log)
            await store.close()

    cluster.run(story())


def test_a_handshake_that_is_swallowed_is_begun_again_before_the_session_timeout(
    cluster: ZookeeperCluster,
) -> None:
    """A server that is just starting swallows one now and then; a broker must not wait it out."""

    async def story() -> None:
        (address,) = cluster.servers.addresses
        async with proxied(address[1]) as proxy:
            servers = dataclasses.replace(cluster.servers, addresses=((LOOPBACK, proxy.port),))
            store = ZookeeperStore(servers, asyncio.get_running_loop(), 50_000)
            cluster.stores.append(store)
            proxy.swallows_answers = True
            opening = asyncio.ensure_future(store.open())
            # The first two are swallowed, then the server answers; the timeout is far away.
            await cluster.until(lambda: proxy.connections == 2)
            proxy.swallows_answers = False
            await opening
            await store.close()

    cluster.run(story())


# what is refused


def test_a_chroot_that_is_not_there_is_named_and_made_on_request(
    zookeeper: LocalZookeeper, cluster: ZookeeperCluster
) -> None:
    async def story() -> None:
        servers = dataclasses.replace(cluster.servers, chroot=f"{cluster.servers.chroot}/a/b")
        store = ZookeeperStore(servers, asyncio.get_running_loop(), 3000)
        for _ in range(2):
            with pytest.raises(StoreError, match=r"chroot does not exist; `tidelog store create z"):
                await store.open()
        assert await create_chroot(servers)
        assert not await create_chroot(servers)
        await store.open()
        assert await store.children("/") == []
        await store.close()

    cluster.run(story())


def test_a_server_that_is_not_there_is_waited_for_and_named(cluster: ZookeeperCluster) -> None:
    async def story() -> None:
        [port] = free_ports(1)
        servers = Servers(((LOOPBACK, port),))
        log: list[str] = []
        store = ZookeeperStore(
            servers, asyncio.get_running_loop(), 3000, connect_timeout_ms=400, log=log.append
        )
        with pytest.raises(StoreUnavailable) as raised:
            await store.open()
        for words in (f"{LOOPBACK}:{port}", "within 400 ms", "refused"):
            assert words in str(raised.value)
        assert [line for line in log if line.startswith(f"waiting for ZooKeeper at {LOOPBACK}")]
        with pytest.raises(StoreUnavailable, match="there is no session"):
            await store.get("/")
        await store.close()

    cluster.run(story())


def test_a_server_that_comes_late_is_found(cluster: ZookeeperCluster) -> None:
    async def story() -> None:
        async with proxied(cluster.servers.addresses[0][1]) as proxy:
            await proxy.refuse()
            servers = dataclasses.replace(cluster.servers, addresses=((LOOPBACK, proxy.port),))
            store = ZookeeperStore(
                servers, asyncio.get_running_loop(), 600, connect_timeout_ms=20_000
            )
            opening = asyncio.create_task(store.open())
            # For longer than a loop may be silent: nobody beats for a store that is not open.
            await asyncio.sleep(0.8)
            assert not opening.done()
            await proxy.listen()
            await opening
            assert await store.children("/") == []
            await store.close()

    cluster.run(story())


def test_something_that_is_no_zookeeper_is_named(cluster: ZookeeperCluster) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async def story() -> None:
        async with await asyncio.start_server(answer, LOOPBACK, 0) as server:
            port = server.sockets[0].getsockname()[1]
            store = ZookeeperStore(
                Servers(((LOOPBACK, port),)),
                asyncio.get_running_loop(),
                3000,
                connect_timeout_ms=500,
            )
            with pytest.raises(StoreUnavailable, match=f"{LOOPBACK}:{port}"):
                await store.open()
            await store.close()

    cluster.run(story())


def test_a_chroot_counts_for_the_size_of_a_transaction(cluster: ZookeeperCluster) -> None:
    async def story() -> None:
        servers = dataclasses.replace(
            cluster.servers, chroot=f"{cluster.servers.chroot}/{'x' * 900}"
        )
        await create_chroot(servers)
        store = ZookeeperStore(servers, asyncio.get_running_loop(), 3000)
        await store.open()
        with pytest.raises(RequestTooLarge, match="chroot of 9"):
            await store.transact([Create(f"/{number}", bytes(500)) for number in range(1000)])
        await store.transact([Create(f"/{number}", bytes(50)) for number in range(900)])
        await store.close()

    cluster.run(story())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("zookeeper://", "without a name"),
        ("zookeeper://a:1,", "without a name"),
        ("zookeeper://a:port", "host:port"),
        ("zookeeper://a:99999", "host:port"),
        ("zookeeper://a:1,a:1", "named twice"),
        ("zookeeper://a:1/b//c", "not a path"),
        ("zookeeper://a:1/b/../c", "not a path"),
    ],
)
def test_addresses_that_are_none_are_refused(text: str, wrong: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_servers(text)
    assert text in str(raised.value) and wrong in str(raised.value)


def test_addresses_are_read() -> None:
    assert parse_servers("zookeeper://a:1,[::1]:2,c/x/y/") == Servers(
        (("a", 1), ("::1", 2), ("c", 2181)), "/x/y"
    )
    assert parse_servers("a/").chroot == ""
    assert str(parse_servers("zookeeper://[::1]:2/x")) == "zookeeper://[::1]:2/x"
