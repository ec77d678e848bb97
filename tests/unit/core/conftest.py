"""Runs one coroutine under a real asyncio loop and under virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tidelog.core.ports import Clock, TimerHandle
from tidelog.core.tasks import Tasks
from tidelog.sim.simulator import CollectorPaused, Simulator


class RealClock:
    """`core.ports.Clock` over a real loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)


class Driver:
    """A loop with its clock; unhandled errors of the loop are collected."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self.clock = clock
        self.failures: list[tuple[str, BaseException]] = []
        self.unhandled: list[str] = []
        self.tasks = Tasks(loop, clock, lambda name, error: self.failures.append((name, error)))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        raise NotImplementedError


class RealDriver(Driver):
    def __init__(self) -> None:
        loop = asyncio.new_event_loop()
        super().__init__(loop, RealClock(loop))
        loop.set_exception_handler(lambda _, context: self.unhandled.append(str(context)))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)


class VirtualDriver(Driver):
    def __init__(self, world: Simulator) -> None:
        self.world = world
        ports = world.add_node(1, "node1").start()
        super().__init__(ports.loop, ports.clock)
        self.unhandled = world.violations

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.Task(coroutine, loop=self.loop)
        assert self.world.run_while(lambda: not task.done(), 3600 * 10**9)
        return task.result()


@pytest.fixture(params=["asyncio", "virtual time"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    with CollectorPaused():
        if request.param == "asyncio":
            real = RealDriver()
            yield real
            real.loop.close()
            assert real.unhandled == []
        else:
            world = Simulator(1)
            virtual = VirtualDriver(world)
            yield virtual
            world.close()
            assert virtual.unhandled == []
