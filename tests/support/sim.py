"""Small nodes and frame handlers that the simulator's own tests run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.core.ports import FrameHandler, Ports, Transport
from tidelog.core.receive_budget import ReceiveBudget
from tidelog.core.tasks import Tasks
from tidelog.sim.checkers.checker import CheckedRun
from tidelog.sim.node import SimNode
from tidelog.sim.simulator import Simulator

MAX_FRAME_BYTES = 1 << 20
S = 1_000_000_000
MS = 1_000_000


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def checked(
    found: list[str],
    now_ns: Callable[[], int] = lambda: 0,
    *,
    published: Any = None,
    brokers: Any = None,
) -> CheckedRun:
    """What a checker sees of a run made by hand; its violations go to `found`."""
    return CheckedRun(published, found.append, now_ns, {} if brokers is None else brokers)


class Recorder:
    """A FrameHandler that keeps its calls; `echo` sends each frame back."""

    def __init__(self, transport: Transport, *, echo: bool = False) -> None:
        self.transport = transport
        self.echo = echo
        self.reads: list[list[bytes]] = []
        self.lost: list[str] = []
        self.taken_bytes = 0

    @property
    def frames(self) -> list[bytes]:
        return [payload for read in self.reads for payload in read]

    def frames_received(self, frames: list[memoryview]) -> None:
        self.reads.append([bytes(payload) for payload in frames])
        if self.echo:
            for payload in frames:
                self.transport.send([len(payload).to_bytes(4, "big"), bytes(payload)])

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def send_queue_changed(self, sent_bytes: int) -> None:
        self.taken_bytes += sent_bytes


class Running:
    """A started node with its tasks; failures of tasks are collected."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.ports: Ports = node.start()
        self.failures: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(
            self.ports.loop, self.ports.clock, lambda name, e: self.failures.append((name, e))
        )
        assert node.incarnation is not None
        self.incarnation = node.incarnation

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.tasks.spawn("test", coroutine)


def run(simulator: Simulator, running: Running, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run one coroutine of a node to its end."""
    task = running.spawn(coroutine)
    assert simulator.run_while(lambda: not task.done(), simulator.now_ns + 3600 * S)
    return task.result()


def pair(simulator: Simulator) -> tuple[Running, Running]:
    """Two started nodes, `node1` and `node2`."""
    return Running(simulator.add_node(1, "node1")), Running(simulator.add_node(2, "node2"))


def connect(
    simulator: Simulator,
    client: Running,
    server: Running,
    *,
    echo: bool = False,
    port: int = 9092,
    budget: ReceiveBudget | None = None,
) -> tuple[Recorder, Recorder]:
    """A connection from one node to the other; returns (client's, server's) handler."""
    accepted: list[Recorder] = []
    opened: list[Recorder] = []

    def accept(transport: Transport) -> FrameHandler:
        accepted.append(Recorder(transport, echo=echo))
        return accepted[-1]

    def open_handler(transport: Transport) -> FrameHandler:
        opened.append(Recorder(transport))
        return opened[-1]

    async def listen() -> None:
        await server.ports.network.listen(server.node.host, port, accept, MAX_FRAME_BYTES, budget)

    async def dial() -> None:
        await client.ports.network.connect(
            server.node.host, port, open_handler, 1000, MAX_FRAME_BYTES
        )

    run(simulator, server, listen())
    run(simulator, client, dial())
    simulator.run_until(simulator.now_ns + 10 * MS)
    return opened[0], accepted[0]


def in_node(simulator: Simulator, running: Running, call: Callable[[], object]) -> None:
    """Make a call as an event of the node, at once."""
    simulator.scheduler.after(0, running.incarnation, call)
    simulator.run_until(simulator.now_ns)
