"""Faults of the simulated store: what they do, and what holds in spite of them (S1-S3, S5)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.store.clusters import NS_PER_MS, SimCluster

from tidelog.core.errors import NodeDead
from tidelog.metadata.store import (
    Create,
    Delete,
    Node,
    Op,
    OutcomeUnknown,
    SessionEvent,
    SessionExpired,
    SetData,
    StoreUnavailable,
    TransactionFailed,
    WatchEvent,
)
from tidelog.sim.disk import Loss
from tidelog.sim.node import Incarnation
from tidelog.sim.sim_store import SimStoreClient, SimStoreServer
from tidelog.sim.simulator import Simulator

CONNECTED, SUSPENDED = SessionEvent.CONNECTED, SessionEvent.SUSPENDED
EXPIRED = SessionEvent.EXPIRED


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    made = SimCluster()
    yield made
    made.close()


async def opened(cluster: SimCluster, timeout_ms: int = 3000) -> tuple[Any, list[SessionEvent]]:
    """An open store, and what it tells of its session from then on."""
    store = await cluster.open(timeout_ms)
    heard: list[SessionEvent] = []
    store.on_session(heard.append)
    return store, heard


def task(cluster: SimCluster, coroutine: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coroutine, loop=cluster.ports.loop)


def test_a_lost_answer_is_an_unknown_outcome_that_was_applied(cluster: SimCluster) -> None:
    async def story() -> None:
        store, heard = await opened(cluster)
        session_id = store.session_id
        store.lose_next_answer()
        with pytest.raises(OutcomeUnknown):
            await store.transact([Create("/a", b"x")])
        node = await store.get("/a")
        assert node is not None and node.data == b"x"
        assert (heard, store.session_id) == ([SUSPENDED, CONNECTED], session_id)

    cluster.run(story())


def test_a_lost_request_is_an_unknown_outcome_that_is_never_applied(cluster: SimCluster) -> None:
    async def story() -> None:
        store, _ = await opened(cluster)
        store.lose_next_request()
        behind = task(cluster, store.transact([Create("/behind", b"")]))
        with pytest.raises(OutcomeUnknown):
            await behind
        assert await store.get("/behind") is None
        await cluster.sleep(5000)
        assert await store.get("/behind") is None
        await store.transact([Create("/a", b"")])

    cluster.run(story())


def test_transactions_behind_a_lost_one_are_unknown_too_and_not_applied(
    cluster: SimCluster,
) -> None:
    async def story() -> None:
        store, _ = await opened(cluster)
        await store.transact([Create("/a", b"")])
        store.lose_next_answer()
        writes = [
            task(cluster, store.transact([SetData("/a", str(version).encode(), version)]))
            for version in range(3)
        ]
        read = task(cluster, store.get("/a"))
        for write in writes:
            with pytest.raises(OutcomeUnknown):
                await write
        node = await read
        assert node.data == b"0", "the read is sent again, and shows what became of the writes"
        assert (await store.get("/a")).stat.version == 1

    cluster.run(story())


def test_an_expiry_is_one_transaction_and_refuses_every_later_write(cluster: SimCluster) -> None:
    async def story() -> None:
        store, heard = await opened(cluster)
        witness = await cluster.open()
        await store.transact(
            [Create("/a", b""), *(Create(f"/a/e{n}", b"", ephemeral=True) for n in range(3))]
        )
        seen: list[WatchEvent] = []
        await witness.children("/a", seen.append)
        commits: list[tuple[int, int, list[Op]]] = []
        cluster.server.on_commit(
            lambda zxid, session_id, ops, _: commits.append((zxid, session_id, list(ops)))
        )
        session_id = store.session_id
        late = task(cluster, store.transact([Create("/late", b"")]))
        await cluster.sleep(0)
        assert cluster.server.expire(session_id)
        assert not cluster.server.expire(session_id)
        with pytest.raises(SessionExpired):
            await late
        assert heard == [EXPIRED]
        assert commits == [(2, session_id, [Delete(f"/a/e{n}", -1) for n in range(3)])]
        assert await witness.children("/a") == []
        assert len(seen) == 1
        assert await witness.get("/late") is None
        assert cluster.server.expiries == 1

    cluster.run(story())


def test_requests_wait_while_the_store_cannot_be_reached(cluster: SimCluster) -> None:
    async def story() -> None:
        store, heard = await opened(cluster)
        await store.transact([Create("/e", b"", ephemeral=True)])
        cluster.reachable = False
        write = task(cluster, store.transact([Create("/a", b"")]))
        read = task(cluster, store.get("/a"))
        await cluster.sleep(1000)
        assert heard == [SUSPENDED]
        assert not write.done() and not read.done()
        cluster.reachable = True
        await write
        assert await read is not None
        assert heard == [SUSPENDED, CONNECTED]
        assert await store.get("/e") is not None

    cluster.run(story())


def test_a_store_out_of_reach_is_no_expiry_until_it_says_so(cluster: SimCluster) -> None:
    """S3: the broker serves on; it hears of the expiry when it reaches the store again."""

    async def story() -> None:
        store, heard = await opened(cluster, timeout_ms=1000)
        await store.transact([Create("/e", b"", ephemeral=True)])
        cluster.reachable = False
        with pytest.raises(StoreUnavailable):
            await store.transact([Create("/a", b"")])
        await cluster.sleep(3000)
        assert heard == [SUSPENDED]
        assert store.session_id is not None
        assert cluster.server.tree.get("/e") is None, "the store has expired it"
        assert cluster.server.tree.get("/a") is None, "unavailable is certainly not applied"
        cluster.reachable = True
        with pytest.raises(SessionExpired):
            await store.get("/e")
        assert heard == [SUSPENDED, EXPIRED]
        await store.open()
        assert await store.get("/a") is None

    cluster.run(story())


def test_a_transaction_under_way_when_the_connection_breaks_is_unknown(
    cluster: SimCluster,
) -> None:
    async def story() -> None:
        applied = 0
        for number in range(40):
            store, _ = await opened(cluster)
            write = task(cluster, store.transact([Create(f"/n{number}", b"")]))
            await cluster.sleep(number % 4)
            cluster.reachable = False
            await cluster.sleep(50)
            cluster.reachable = True
            try:
                await write
                known = True
            except OutcomeUnknown:
                known = False
            made = await store.get(f"/n{number}") is not None
            assert made or not known
            applied += made and not known
            await store.close()
        assert 0 < applied < 40, "some were applied before the break, some were not"

    cluster.run(story())


def test_opening_fails_when_the_store_is_out_of_reach(cluster: SimCluster) -> None:
    async def story() -> None:
        cluster.reachable = False
        store = cluster.store(timeout_ms=500)
        with pytest.raises(StoreUnavailable):
            await store.open()
        cluster.reachable = True
        await store.open()
        assert await store.get("/") is not None

    cluster.run(story())


def test_a_late_watch_still_comes_before_a_later_answer(cluster: SimCluster) -> None:
    async def story() -> None:
        writer, watcher = await cluster.open(), await cluster.open()
        cluster.server.watch_delay_ms = lambda: 1000.0
        await writer.transact([Create("/a", b"")])
        seen: list[WatchEvent] = []
        await watcher.get("/a", seen.append)
        await writer.transact([SetData("/a", b"", 0)])
        await cluster.sleep(200)
        assert seen == [], "nothing hurries it"
        node = await watcher.get("/a")
        assert node is not None
        assert node.stat.version == 1
        assert len(seen) == 1

    cluster.run(story())


# crashes and pauses: nodes of their own


class Cell:
    """A world of several nodes with a store client each."""

    def __init__(self, seed: int, nodes: int, detect_ms: float | None = None) -> None:
        self.world = Simulator(seed)
        self.draw = random.Random(seed)
        self.server = SimStoreServer(
            lambda delay_ms, callback: self.world.scheduler.after(
                round(delay_ms * NS_PER_MS), None, callback
            )
        )
        self.detect_ms = detect_ms
        self.cut = [False] * nodes
        self.nodes = [self.world.add_node(number, f"host-{number}") for number in range(nodes)]

    def start(self, number: int, timeout_ms: int = 1000) -> tuple[Incarnation, SimStoreClient]:
        """A new incarnation of a node, with a client whose loop beats."""
        ports = self.nodes[number].start()
        incarnation = self.nodes[number].incarnation
        assert incarnation is not None
        client = SimStoreClient(
            self.server,
            loop=ports.loop,
            clock=ports.clock,
            latency=lambda: self.draw.random() * 5,
            alive=lambda: incarnation.port_call("store"),
            reachable=lambda: not self.cut[number],
            session_timeout_ms=timeout_ms,
            detect_ms=self.detect_ms,
        )

        def beat() -> None:
            client.beat()
            ports.clock.call_later(50, beat)

        ports.clock.call_later(0, beat)
        incarnation.on_death.append(lambda _: client.crashed())
        return incarnation, client

    def spawn(self, incarnation: Incarnation, coroutine: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coroutine, loop=incarnation.loop)

    def run_ms(self, duration_ms: int) -> None:
        self.world.run_until(self.world.now_ns + duration_ms * NS_PER_MS)
        self.world.check()


async def register(client: SimStoreClient, path: str) -> None:
    await client.open()
    await client.transact([Create(path, b"", ephemeral=True)])


def test_watches_that_fire_out_of_reach_come_before_any_later_answer() -> None:
    cell = Cell(6, 2)
    watching, watcher = cell.start(0)
    writing, writer = cell.start(1)
    paths = [f"/n{n}" for n in range(5)]
    order: list[str] = []

    async def watch() -> None:
        await watcher.open()
        for path in paths:
            await watcher.get(path, lambda event: order.append(event.path))

    async def write() -> None:
        await writer.open()
        await writer.transact([Create(path, b"") for path in paths])

    async def read() -> None:
        node = await watcher.get(paths[4])
        assert node is not None
        order.append("answer")

    cell.spawn(watching, watch())
    cell.run_ms(100)
    cell.cut[0] = True
    reading = cell.spawn(watching, read())
    cell.spawn(writing, write())
    cell.run_ms(400)
    assert cell.server.tree.get(paths[4]) is not None
    assert order == []
    cell.cut[0] = False
    cell.run_ms(400)
    assert reading.done()
    assert order == [*paths, "answer"]
    cell.world.close()


@pytest.mark.parametrize(("detect_ms", "gone_after_ms"), [(None, 1000), (20.0, 20)])
def test_a_crashed_node_has_no_effect_and_its_session_ends(
    detect_ms: float | None, gone_after_ms: int
) -> None:
    cell = Cell(3, 1, detect_ms)
    incarnation, client = cell.start(0)
    cell.spawn(incarnation, register(client, "/e"))
    cell.run_ms(400)
    assert cell.server.tree.get("/e") is not None
    incarnation.die(Loss.NONE, "test")
    for call in (client.beat, lambda: client.get("/").send(None)):
        with pytest.raises(NodeDead):
            call()
    cell.run_ms(gone_after_ms - 10)
    assert cell.server.tree.get("/e") is not None or detect_ms is None
    cell.run_ms(20)
    assert cell.server.tree.get("/e") is None
    cell.world.close()


def test_a_restarted_node_waits_for_its_old_session_to_end() -> None:
    """S5: the old registration is still there, and names another session."""
    cell = Cell(4, 1)
    incarnation, client = cell.start(0)
    cell.spawn(incarnation, register(client, "/e"))
    cell.run_ms(100)
    old = client.session_id
    incarnation.die(Loss.NONE, "test")
    again, successor = cell.start(0)
    refusals: list[int] = []

    async def come_back() -> None:
        await successor.open()
        while True:
            try:
                await successor.transact([Create("/e", b"", ephemeral=True)])
                return
            except TransactionFailed:
                node = await successor.get("/e")
                if node is not None:
                    refusals.append(node.stat.ephemeral_owner)

    coming = cell.spawn(again, come_back())
    cell.run_ms(3000)
    assert coming.done()
    assert refusals and dict.fromkeys(refusals) == {old: None}
    node = cell.server.tree.get("/e")
    assert node is not None and node.stat.ephemeral_owner == successor.session_id
    cell.world.close()


def test_a_paused_node_hears_nothing_and_finds_its_session_over() -> None:
    cell = Cell(5, 2)
    incarnation, client = cell.start(0)
    _, other = cell.start(1)
    heard: list[object] = []
    client.on_session(heard.append)

    async def watch() -> Node | None:
        await client.open()
        await client.transact([Create("/e", b"", ephemeral=True)])
        return await client.get("/e", heard.append)

    cell.spawn(incarnation, watch())
    cell.run_ms(100)
    assert heard == [CONNECTED]
    incarnation.pause()
    cell.run_ms(2000)
    assert heard == [CONNECTED]
    assert cell.server.tree.get("/e") is None
    assert other.session_id is None
    incarnation.resume()
    cell.run_ms(100)
    assert heard == [CONNECTED, EXPIRED]
    cell.world.close()


async def attempt(client: SimStoreClient, ops: list[Op], marker: str) -> bool:
    """Whether a transaction that makes `marker` was applied."""
    try:
        await client.transact(ops)
    except OutcomeUnknown:
        while True:
            try:
                await client.open()
                return await client.get(marker) is not None
            except (SessionExpired, StoreUnavailable):
                continue
    return True


@pytest.mark.parametrize("seed", range(8))
def test_conditional_writes_with_read_back_count_right_under_every_fault(seed: int) -> None:
    """S2: an unknown outcome is read back; nothing is counted twice, nothing is lost."""
    cell = Cell(seed, 3)
    counted: dict[str, int] = {}
    pace = random.Random(seed)

    async def pause(client_loop: asyncio.AbstractEventLoop, incarnation: Incarnation) -> None:
        future: asyncio.Future[None] = client_loop.create_future()
        incarnation.clock.call_later(pace.random() * 30, lambda: future.set_result(None))
        await future

    async def count(number: int, incarnation: Incarnation, client: SimStoreClient) -> None:
        done = 0
        while done < 250:
            try:
                await client.open()
                await pause(incarnation.loop, incarnation)
                node = await client.get("/n")
                if node is None:
                    await client.transact([Create("/n", b"")])
                    continue
                token = f"{number}.{done}".encode()
                marker = f"/{number}.{done}"
                ops: list[Op] = [SetData("/n", token, node.stat.version), Create(marker, token)]
                done += await attempt(client, ops, marker)
            except (TransactionFailed, SessionExpired, StoreUnavailable):
                continue
            except OutcomeUnknown:
                continue  # of the creation: the next read tells
        counted[str(number)] = done

    tasks = []
    clients = []
    for number in range(3):
        incarnation, client = cell.start(number)
        clients.append(client)
        tasks.append(cell.spawn(incarnation, count(number, incarnation, client)))
    expiries = 0
    for _ in range(600):
        cell.run_ms(50)
        victim = cell.draw.randrange(3)
        fault = cell.draw.randrange(8)
        session_id = clients[victim].session_id
        if fault == 0:
            cell.cut[victim] = not cell.cut[victim]
        elif fault == 1:
            clients[victim].lose_next_answer()
        elif fault == 2:
            clients[victim].lose_next_request()
        elif fault == 3 and session_id is not None and cell.draw.random() < 0.3:
            expiries += cell.server.expire(session_id)
    cell.cut = [False] * 3
    cell.run_ms(60_000)
    assert all(one.done() for one in tasks), "somebody waits for ever"
    assert counted == {"0": 250, "1": 250, "2": 250}
    node = cell.server.tree.get("/n")
    assert node is not None and node.stat.version == 750
    assert expiries > 5
    cell.world.close()
