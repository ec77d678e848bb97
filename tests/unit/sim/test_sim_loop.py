"""Virtual time: order, timers, pause, death, and what becomes of unhandled exceptions."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from tests.support.sim import (
    MS,
    Running,
    S,
    pair,
    run,
)

from tidelog.core.errors import NodeDead
from tidelog.sim.disk import Loss
from tidelog.sim.node import Strike
from tidelog.sim.simulator import Simulator


def test_events_run_in_order_of_time_then_of_scheduling(simulator: Simulator) -> None:
    seen: list[tuple[int, int]] = []
    draw = random.Random(3)
    times = [draw.randrange(5) for _ in range(200)]
    for number, time_ns in enumerate(times):
        simulator.scheduler.at(time_ns, None, lambda t=time_ns, n=number: seen.append((t, n)))
    simulator.run_until(10)
    assert seen == sorted(seen)
    assert len(seen) == 200


def test_time_stands_still_in_an_event_and_jumps_between(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))
    seen: list[int] = []
    node.ports.clock.call_later(5, lambda: seen.append(node.ports.clock.monotonic_ms()))
    node.ports.clock.call_later(2.5, lambda: seen.append(node.ports.clock.monotonic_ns()))
    simulator.run_until(S)
    assert seen == [2_500_000, 5]
    assert simulator.now_ns == S


def test_a_cancelled_timer_never_fires_and_cancelling_a_fired_one_is_harmless(
    simulator: Simulator,
) -> None:
    node = Running(simulator.add_node(1, "node1"))
    seen: list[str] = []
    first = node.ports.clock.call_later(1, lambda: seen.append("first"))
    second = node.ports.clock.call_later(1, lambda: seen.append("second"))
    first.cancel()
    simulator.run_until(S)
    second.cancel()
    assert seen == ["second"]


def test_many_cancelled_timers_leave_the_heap(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))
    for _ in range(20_000):
        node.ports.clock.call_later(60_000, lambda: None).cancel()
    assert len(simulator.scheduler._heap) < 10_000


def test_stdlib_tasks_futures_and_timeouts_run_on_a_node_loop(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))

    async def program() -> list[object]:
        loop = asyncio.get_running_loop()
        assert loop is node.ports.loop
        future = loop.create_future()
        loop.call_later(0.5, future.set_result, "later")
        values: list[object] = [await future, loop.time()]
        child = loop.create_task(asyncio.sleep(0.25, "slept"), name="child")
        values += [await child, loop.time()]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await loop.create_future()
        values.append(loop.time())
        return values

    assert run(simulator, node, program()) == ["later", 0.5, "slept", 0.75, 1.75]


def test_endless_callbacks_at_one_instant_are_told(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.sim.loop.MAX_EVENTS_AT_ONE_INSTANT", 100)

    def again() -> None:
        simulator.scheduler.after(0, None, again)

    again()
    with pytest.raises(RuntimeError, match="time stands still"):
        simulator.run_until(S)


def test_an_exception_in_a_callback_is_a_violation_that_ends_the_run(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))
    later: list[int] = []

    def fail() -> None:
        _ = 1 // 0

    node.ports.clock.call_later(1, fail)
    node.ports.clock.call_later(2, lambda: later.append(1))
    simulator.run_until(S)
    assert "node 1: unhandled" in simulator.violations[0]
    assert "ZeroDivisionError" in simulator.violations[0]
    assert later == []


async def fails() -> None:
    raise ValueError("lost")


async def fails_below() -> None:
    await fails()


async def fails_after_a_sleep() -> None:
    await asyncio.sleep(0.01)
    await fails_below()


async def fails_while_it_handles_another_error() -> None:
    try:
        await fails_after_a_sleep()
    except ValueError:
        await fails()


async def fails_in_a_task_of_its_own() -> None:
    asyncio.get_running_loop().create_task(fails_after_a_sleep())


@pytest.mark.parametrize(
    "coroutine",
    [
        fails,
        fails_below,
        fails_after_a_sleep,
        fails_while_it_handles_another_error,
        fails_in_a_task_of_its_own,
    ],
)
def test_a_task_error_that_nobody_retrieves_is_a_violation(
    simulator: Simulator, coroutine: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """At once, while no garbage is collected: no frame of the loop may keep the task."""
    node = Running(simulator.add_node(1, "node1"))
    node.ports.loop.create_task(coroutine())
    simulator.run_until(S)
    assert any("ValueError('lost')" in text for text in simulator.violations)


def test_a_task_is_not_started_before_its_own_event(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))
    coroutine = fails()
    options: dict[str, Any] = {"eager_start": True}
    with pytest.raises(RuntimeError, match="starts each task in an event of its own"):
        node.ports.loop.create_task(coroutine, **options)
    coroutine.close()


def test_events_of_a_paused_node_wait_and_run_in_order(simulator: Simulator) -> None:
    one, two = pair(simulator)
    seen: list[str] = []
    for name, node, delay_ms in (("a", one, 1), ("b", two, 2), ("c", one, 3), ("d", one, 50)):
        node.ports.clock.call_later(delay_ms, partial(seen.append, name))
    one.incarnation.pause()
    simulator.run_until(10 * MS)
    assert seen == ["b"]
    one.incarnation.resume()
    simulator.run_until(11 * MS)
    assert seen == ["b", "a", "c"]
    simulator.run_until(S)
    assert seen == ["b", "a", "c", "d"]


def test_a_dead_incarnation_does_nothing_and_its_finally_blocks_do_not_act(
    simulator: Simulator,
) -> None:
    node = Running(simulator.add_node(1, "node1"))
    acted: list[str] = []

    async def holds() -> None:
        try:
            await node.ports.loop.create_future()
        finally:
            acted.append("finally")

    node.spawn(holds())
    node.ports.clock.call_later(5, lambda: acted.append("timer"))
    simulator.run_until(MS)
    node.incarnation.die(Loss.NONE, "test")
    simulator.run_until(S)
    assert acted == []
    with pytest.raises(NodeDead):
        node.ports.clock.monotonic_ms()
    with pytest.raises(NodeDead):
        node.ports.random.random()
    with pytest.raises(NodeDead):
        node.ports.tracer.event("anything")
    with pytest.raises(NodeDead):
        node.ports.open_lane("/data")
    assert simulator.violations == []


def test_coroutines_that_will_never_run_are_closed_at_the_end(simulator: Simulator) -> None:
    running = Running(simulator.add_node(1, "node1"))
    made: list[Coroutine[None, None, None]] = []

    def never() -> Coroutine[None, None, None]:
        async def act() -> None:
            raise AssertionError("it ran")

        made.append(act())
        return made[-1]

    running.spawn(running.tasks.timeout(5, never(), "in time"))
    running.spawn(running.tasks.gather_ordered(never(), never()))
    running.incarnation.die(Loss.NONE, "the test")
    running.spawn(never())
    simulator.close()
    assert [inspect.getcoroutinestate(each) for each in made] == [inspect.CORO_CLOSED] * 4


def test_a_planned_crash_strikes_at_the_port_call_it_names(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))
    node.incarnation.plan_strike(Strike(3, Loss.NONE, "network."))
    reached: list[int] = []

    async def program() -> None:
        node.ports.open_lane("/data")
        for number in range(5):
            await node.ports.network.listen("node1", 0, lambda _: None, 100)  # type: ignore[arg-type,return-value]  # nobody connects
            reached.append(number)

    node.spawn(program())
    simulator.run_until(S)
    assert reached == [0, 1]
    assert not node.node.is_up
    assert "port call 4 (network.listen)" in node.incarnation.end_reason
    assert simulator.violations == []


def test_a_restarted_node_has_new_ports_and_another_random_stream(simulator: Simulator) -> None:
    node = simulator.add_node(1, "node1")
    first = node.start()
    drawn = [first.random.random() for _ in range(3)]
    with pytest.raises(RuntimeError, match="is running"):
        node.start()
    assert node.incarnation is not None
    node.incarnation.die(Loss.NONE, "test")
    second = node.start()
    assert [second.random.random() for _ in range(3)] != drawn
    assert node.incarnation.number == 2


def test_halt_ends_the_node_and_is_judged_by_whoever_runs_the_world(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))
    reasons: list[str] = []
    simulator.on_halt = lambda incarnation, reason: reasons.append(reason)
    node.ports.clock.call_later(1, lambda: node.ports.halt("directory failed"))
    node.ports.clock.call_later(2, lambda: reasons.append("still there"))
    simulator.run_until(S)
    assert reasons == ["directory failed"]
    assert not node.node.is_up


def test_halt_is_a_violation_where_nobody_judges_it(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))
    node.ports.clock.call_later(1, lambda: node.ports.halt("broken invariant"))
    simulator.run_until(S)
    assert "broken invariant" in simulator.violations[0]


def test_wall_clock_follows_virtual_time_with_the_nodes_offset(simulator: Simulator) -> None:
    node = Running(simulator.add_node(1, "node1"))
    before = node.ports.clock.wall_ms()
    simulator.run_until(3 * S)
    assert node.ports.clock.wall_ms() == before + 3000
    node.node.wall_offset_ms = -5000
    assert node.ports.clock.wall_ms() == before - 2000
