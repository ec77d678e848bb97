"""A healthy cluster on which one fault is injected, and what shows its effect."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tidelog.client.steps import Address
from tidelog.core.errors import TidelogError
from tidelog.sim.broker_settings import PORT, BrokerSettings, host_of
from tidelog.sim.faults import KINDS, SCENARIOS, Faults
from tidelog.sim.faults.context import FaultContext
from tidelog.sim.loop import NS_PER_MS, NS_PER_S
from tidelog.sim.profiles import Pace, Profile
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.simulator import CollectorPaused, Simulator
from tidelog.sim.workload.administrator import Administrator
from tidelog.sim.workload.client import ClientConnection, ClientNode
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.registry import METADATA

CLIENT = "client101"
TOPIC = "t"
_QUIET = Profile("quiet", pace=Pace(down_ms=((300, 400),)))


class FaultHarness:
    """Three brokers, one topic, one client with a connection to each broker."""

    def __init__(self, log_dirs: int = 1) -> None:
        self.simulator = Simulator(11)
        self.lines: list[str] = []
        self.simulator.trace.listener = self.lines.append
        self.cluster = SimCluster(
            self.simulator, 3, BrokerSettings(detect_ms=1.0, log_dirs=log_dirs)
        )
        self.faults = Faults(self.cluster, [CLIENT], random.Random(1), _QUIET)
        self.faults.is_active = True
        node = self.simulator.add_node(101, CLIENT)
        self.client = ClientNode(node, self.cluster.history, self.cluster.bootstrap, 4_000)
        self.cluster.start()
        self.until(lambda: not self.cluster.health())
        admin = Administrator(self.client, random.Random(2))
        made = self.client.tasks.spawn("create", admin.create(TOPIC, 1, 3, {}))
        self.until(lambda: made.done() and not self.cluster.health())
        self.connections: dict[int, ClientConnection] = {}
        for broker_id in self.cluster.brokers:
            self.connections[broker_id] = self.connect(broker_id)

    # Time

    def until(self, holds: Callable[[], bool], limit_ms: int = 30_000) -> None:
        """Run until something holds; it must within the limit."""
        limit_ns = self.simulator.now_ns + limit_ms * NS_PER_MS
        assert self.simulator.run_while(lambda: not holds(), limit_ns), self.simulator.violations

    def run(self, time_ms: float) -> None:
        """Run for so long; nothing may be violated."""
        self.simulator.run_until(self.simulator.now_ns + int(time_ms * NS_PER_MS))
        assert self.simulator.violations == [], self.simulator.violations

    # Faults

    def context(self, seed: int = 0, hosts: list[str] | None = None) -> FaultContext:
        """A fault's context whose draws come from this seed."""
        every = [host_of(broker_id) for broker_id in self.cluster.brokers]
        return FaultContext(
            self.faults, self.cluster, hosts or [*every, CLIENT], random.Random(seed)
        )

    def inject(self, kind: str, seed: int = 0, hosts: list[str] | None = None) -> None:
        """Inject a fault that finds somebody to strike."""
        assert KINDS[kind].inject(self.context(seed, hosts))

    def play(self, scenario: str, seed: int = 0) -> None:
        """Begin a scenario."""
        stage = self.context(seed)
        stage.play(SCENARIOS[scenario](stage))

    def noted(self, text: str) -> list[str]:
        """Lines of the trace with a text."""
        return [line for line in self.lines if text in line]

    # Brokers and clients

    @property
    def brokers(self) -> list[SimBroker]:
        """All of them."""
        return list(self.cluster.brokers.values())

    @property
    def controller(self) -> SimBroker:
        """The active controller."""
        found = self.context().controller()
        assert found is not None
        return found

    def connect(self, broker_id: int) -> ClientConnection:
        """The client's connection to a broker."""
        made = self.try_to_connect(broker_id)
        assert isinstance(made, ClientConnection), made
        return made

    def try_to_connect(self, broker_id: int) -> ClientConnection | TidelogError:
        """The client's connection to a broker, or why there is none."""
        address = Address(host_of(broker_id), PORT)

        async def attempt() -> ClientConnection | TidelogError:
            try:
                return await self.client.connection(address)
            except TidelogError as error:
                return error

        task = self.client.tasks.spawn("connect", attempt())
        self.until(task.done)
        made: ClientConnection | TidelogError = task.result()
        return made

    def forget_connections(self) -> None:
        """The client's next connection is a new one; those there are stay open."""
        self.client._connections.clear()

    def ask(self, broker_id: int) -> Callable[[], float | None]:
        """Send a request on the connection there is; the time in ms until its answer is told
        later, None while there is none (or none will come)."""
        begin_ns = self.simulator.now_ns
        answered: list[float] = []
        future = self.connections[broker_id].call(METADATA, 9, MetadataRequest(topics=[]), 60_000)

        def done(ended: Any) -> None:
            if not ended.cancelled() and not isinstance(ended.exception(), TidelogError):
                answered.append((self.simulator.now_ns - begin_ns) / NS_PER_MS)

        future.add_done_callback(done)
        return lambda: answered[0] if answered else None

    def answer_ms(self, broker_id: int, limit_ms: int = 10_000) -> float | None:
        """How long one request takes, None where it is not answered within the limit."""
        told = self.ask(broker_id)
        limit_ns = self.simulator.now_ns + limit_ms * NS_PER_MS
        self.simulator.run_while(lambda: told() is None, limit_ns)
        return told()


@contextmanager
def fault_harness(log_dirs: int = 1) -> Iterator[FaultHarness]:
    """A harness for one test."""
    with CollectorPaused():
        made = FaultHarness(log_dirs)
        try:
            yield made
        finally:
            made.simulator.close()


__all__ = ["CLIENT", "NS_PER_MS", "NS_PER_S", "TOPIC", "FaultHarness", "fault_harness"]
