"""The stores that the contract suite runs against, each behind the same few verbs.

A `Cluster` runs a test's coroutine on one loop, on which all sessions of that test live. It beats
for each of them until the test stops that. Time is virtual with the simulated store.
"""

from __future__ import annotations

import asyncio
import functools
import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tidelog.metadata.store import MetadataStore
from tidelog.runtime.stores.sqlite import SqliteStore
from tidelog.runtime.stores.zookeeper import ZookeeperStore
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import parse_servers
from tidelog.sim.node import Incarnation
from tidelog.sim.sim_store import SimStoreClient, SimStoreServer
from tidelog.sim.simulator import Simulator

T = TypeVar("T")
LIMIT_S = 30
NS_PER_MS = 1_000_000


def interrupt(store: MetadataStore, method: str, *errors: Exception) -> list[Exception]:
    """Let the next calls of a store's method fail, one error each; returns those still to come."""
    left = list(errors)
    call = getattr(store, method)

    async def interrupted(*arguments: Any, **named: Any) -> Any:
        if left:
            raise left.pop(0)
        return await call(*arguments, **named)

    setattr(store, method, interrupted)
    return left


class Cluster(Protocol):
    """What a contract test needs of a store."""

    name: str

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run a test to its end."""

    def store(self, timeout_ms: int = 3000) -> MetadataStore:
        """A handle of the store, not open yet."""

    async def open(self, timeout_ms: int = 3000) -> Any:
        """An open handle; its loop beats."""

    def silence(self, store: MetadataStore) -> None:
        """The loop of this session turns no more."""

    async def sleep(self, delay_ms: float) -> None:
        """Let time pass."""

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition; fails the test when it does not come."""


class Beating:
    """Beats for a list of stores."""

    def __init__(self) -> None:
        self.stores: list[MetadataStore] = []

    def beat(self) -> None:
        for store in self.stores:
            store.beat()

    def silence(self, store: MetadataStore) -> None:
        self.stores = [one for one in self.stores if one is not store]


class RealCluster(Beating):
    """Handles of a real store in one process, on a loop in real time."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self._made: list[Any] = []

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        async def whole() -> T:
            await self.prepare()
            beats = asyncio.create_task(self._beats())
            try:
                return await asyncio.wait_for(story, LIMIT_S)
            finally:
                beats.cancel()
                for store in self._made:
                    await store.close()

        return asyncio.run(whole())

    async def prepare(self) -> None:
        """What a store needs before it is opened."""

    async def _beats(self) -> None:
        while True:
            self.beat()
            await asyncio.sleep(0.02)

    async def open(self, timeout_ms: int = 3000) -> Any:
        store = self.store(timeout_ms)
        await store.open()
        self.stores.append(store)
        return store

    def store(self, timeout_ms: int = 3000) -> Any:
        raise NotImplementedError

    async def sleep(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.002)


class SqliteCluster(RealCluster):
    """Several handles of one SQLite file; each has its threads and its session."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def store(self, timeout_ms: int = 3000) -> SqliteStore:
        loop = asyncio.get_running_loop()
        made = SqliteStore(
            str(self.directory), loop, session_timeout_ms=timeout_ms, log=self.log.append
        )
        self._made.append(made)
        return made


class ZookeeperCluster(RealCluster):
    """Several handles of a real ZooKeeper, below a chroot of the test's own."""

    name = "zookeeper"

    def __init__(self, hosts: str) -> None:
        super().__init__()
        self.servers = parse_servers(f"zookeeper://{hosts}/test-{secrets.token_hex(8)}")

    async def prepare(self) -> None:
        await create_chroot(self.servers)

    def store(self, timeout_ms: int = 3000) -> ZookeeperStore:
        loop = asyncio.get_running_loop()
        made = ZookeeperStore(
            self.servers, loop, session_timeout_ms=timeout_ms, log=self.log.append
        )
        self._made.append(made)
        return made


class SimCluster(Beating):
    """The simulated store; all sessions belong to one simulated node."""

    name = "sim"

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self.world = Simulator(seed)
        self.server = SimStoreServer(
            lambda delay_ms, callback: self.world.scheduler.after(
                round(delay_ms * NS_PER_MS), None, callback
            )
        )
        self.reachable = True
        self._draw = random.Random(seed)
        node = self.world.add_node(0, "host-0")
        self.ports = node.start()
        assert node.incarnation is not None
        self.node = node
        self.incarnation: Incarnation = node.incarnation

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        task = asyncio.Task(story, loop=self.ports.loop)
        self._beats()
        limit_ns = self.world.now_ns + 10 * LIMIT_S * 1_000_000_000
        self.world.run_while(lambda: not task.done(), limit_ns)
        self.world.check()
        assert task.done(), "the test waits for something that does not come"
        return task.result()

    def _beats(self) -> None:
        self.beat()
        self.ports.clock.call_later(20, self._beats)

    def store(self, timeout_ms: int = 3000) -> SimStoreClient:
        return SimStoreClient(
            self.server,
            loop=self.ports.loop,
            clock=self.ports.clock,
            latency=lambda: self._draw.random() * 3,
            alive=self.incarnation.check_alive,
            reachable=lambda: self.reachable,
            session_timeout_ms=timeout_ms,
        )

    async def open(self, timeout_ms: int = 3000) -> SimStoreClient:
        store = self.store(timeout_ms)
        await store.open()
        self.stores.append(store)
        return store

    async def sleep(self, delay_ms: float) -> None:
        future: asyncio.Future[None] = self.ports.loop.create_future()
        self.ports.clock.call_later(delay_ms, lambda: future.set_result(None))
        await future

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(100_000):
            if holds():
                return
            await self.sleep(2)
        raise AssertionError("what was waited for did not come")

    def close(self) -> None:
        self.world.close()


def told(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test written as a coroutine over `cluster`."""

    @functools.wraps(story)
    def run(cluster: Cluster, **arguments: Any) -> None:
        cluster.run(story(cluster=cluster, **arguments))  # type: ignore[arg-type]  # the story is a coroutine function

    return run
