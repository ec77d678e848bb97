"""A small program on three nodes that touches every port; its trace hash must depend on the seed
alone. Run as a script it prints `seed hash` for each seed given."""

from __future__ import annotations

import sys
from functools import partial

from tests.support.sim import (
    MAX_FRAME_BYTES,
    MS,
    Recorder,
    Running,
    S,
    frame,
)

from tidelog.core.errors import ConnectionLost, RequestTimeout, StorageError
from tidelog.core.ports import Files, Lane, Work
from tidelog.sim.disk import Loss
from tidelog.sim.node import SimNode, Strike
from tidelog.sim.seeds import stream
from tidelog.sim.simulator import CollectorPaused, Simulator

NODES = 3
ROUNDS = 60


def append(files: Files, path: str, content: bytes) -> int:
    handle = files.open(path, write=True, create=True)
    try:
        files.pwritev(handle, [content], files.size(handle))
        if len(content) % 5 == 0:
            files.fsync(handle)
        return files.size(handle)
    finally:
        files.close(handle)


class Program:
    """One node: listens, talks to its neighbour, writes a log, sleeps, gives up and goes on."""

    def __init__(self, node: SimNode) -> None:
        self.running = Running(node)
        self.lane: Lane = self.running.ports.open_lane("/data")
        self.peer = f"node{node.node_id % NODES + 1}"
        self.running.spawn(self.listen())
        self.running.spawn(self.talk())
        self.running.spawn(self.write())

    async def listen(self) -> None:
        await self.running.ports.network.listen(
            self.running.node.host, 9092, lambda t: Recorder(t, echo=True), MAX_FRAME_BYTES
        )

    async def talk(self) -> None:
        ports, tasks = self.running.ports, self.running.tasks
        for number in range(ROUNDS):
            try:
                transport = await tasks.timeout(
                    300,
                    ports.network.connect(self.peer, 9092, Recorder, 200, MAX_FRAME_BYTES),
                    "connect",
                )
            except (ConnectionLost, RequestTimeout) as error:
                ports.tracer.event("not connected", error=str(error))
                await tasks.sleep(ports.random.randrange(1, 50))
                continue
            for _ in range(ports.random.randrange(1, 6)):
                transport.send([frame(ports.random.randbytes(ports.random.randrange(1, 300)))])
            await tasks.sleep(ports.random.random() * 20)
            transport.close(f"round {number}")

    async def write(self) -> None:
        ports = self.running.ports
        ports.tracer.mark("writes")
        for number in range(ROUNDS):
            work = Work.SLOW if ports.random.random() < 0.5 else Work.FAST
            content = ports.random.randbytes(ports.random.randrange(1, 2000))
            path = f"/data/log{number % 3}"
            try:
                size = await self.lane.submit(
                    partial(append, path=path, content=content), work, "append"
                )
                ports.tracer.event("appended", path=path, size=size, names={"b", "a", path})
            except StorageError as error:
                ports.tracer.event("failed", errno=error.errno, at=error.at_ms)
            await self.running.tasks.sleep(5)


def trace_hash(seed: int) -> str:
    """Run the program with faults drawn from the seed; returns the hash of its trace."""
    simulator = Simulator(seed)
    draw = stream(seed, "faults")
    nodes = [simulator.add_node(number, f"node{number}") for number in range(1, NODES + 1)]
    programs = [Program(node) for node in nodes]
    losses = (Loss.NONE, Loss.UNSYNCED, Loss.ALL_UNSYNCED)

    def fault() -> None:
        kind = draw.randrange(6)
        node = nodes[draw.randrange(NODES)]
        other = nodes[draw.randrange(NODES)]
        incarnation = node.incarnation
        if kind == 0 and incarnation is not None:
            incarnation.plan_strike(Strike(draw.randrange(1, 40), losses[draw.randrange(3)]))
        elif kind == 1:
            simulator.network.cut(node.host, other.host)
        elif kind == 2:
            simulator.network.heal_everything()
        elif kind == 3 and incarnation is not None:
            incarnation.pause()
            simulator.scheduler.after(30 * MS, None, incarnation.resume)
        elif kind == 4:
            simulator.disk(node.node_id, "/data").slow = draw.random() < 0.5
        for waiting in nodes:
            if not waiting.is_up:
                programs[waiting.node_id - 1] = Program(waiting)
        simulator.scheduler.after(draw.randrange(60 * MS), None, fault)

    fault()
    simulator.run_until(3 * S)
    digest = simulator.trace.digest()
    if simulator.violations:
        raise AssertionError(simulator.violations[0])
    if any(program.running.failures for program in programs):
        raise AssertionError([program.running.failures for program in programs])
    simulator.close()
    return digest


def main() -> None:
    with CollectorPaused():
        for text in sys.argv[1:]:
            print(text, trace_hash(int(text)))  # noqa: T201


if __name__ == "__main__":
    main()
