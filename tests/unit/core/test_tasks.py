"""`core.tasks` behaves alike under asyncio and under virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.core.conftest import Driver

from tidelog.core.errors import ConnectionLost, RequestTimeout
from tidelog.core.tasks import Signal, shield


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_sleep_returns_after_its_time_and_can_be_cancelled(driver: Driver) -> None:
    async def program() -> None:
        before_ns = driver.clock.monotonic_ns()
        await driver.tasks.sleep(3)
        assert driver.clock.monotonic_ns() - before_ns >= 2_900_000
        sleeper = driver.tasks.spawn("sleeper", driver.tasks.sleep(3_600_000))
        await turns(2)
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper

    driver.run(program())
    assert driver.failures == []


def test_a_spawned_task_that_fails_is_reported_by_name(driver: Driver) -> None:
    error = ValueError("broken")

    async def fails() -> None:
        raise error

    async def program() -> None:
        driver.tasks.spawn("flow", fails())
        await turns(3)

    driver.run(program())
    assert driver.failures == [("flow", error)]


def test_timeout_gives_the_result_the_error_or_a_request_timeout(driver: Driver) -> None:
    async def value() -> int:
        await turns(2)
        return 5

    async def fails() -> None:
        raise ConnectionLost("gone")

    async def program() -> None:
        assert await driver.tasks.timeout(1000, value(), "value") == 5
        with pytest.raises(ConnectionLost):
            await driver.tasks.timeout(1000, fails(), "failure")
        never = driver.loop.create_future()
        with pytest.raises(RequestTimeout, match="fetch: no answer within 2 ms"):
            await driver.tasks.timeout(2, never, "fetch")
        assert never.cancelled()

    driver.run(program())
    assert driver.failures == []


@pytest.mark.parametrize("driver", ["virtual time"], indirect=True)
def test_a_result_that_comes_at_the_instant_of_the_timeout_counts(driver: Driver) -> None:
    """Under virtual time only: there the order within an instant is exact."""

    async def program() -> None:
        answer: asyncio.Future[int] = driver.loop.create_future()
        waiting = driver.tasks.spawn("wait", driver.tasks.timeout(1, answer, "race"))
        await turns(1)
        # The timeout's timer was set first; the answer comes in the same instant, after it.
        driver.clock.call_later(1, lambda: answer.set_result(3))
        assert await asyncio.wait_for(waiting, 10) == 3

    driver.run(program())


def test_cancelling_a_wait_with_a_timeout_cancels_what_it_waits_for(driver: Driver) -> None:
    async def program() -> None:
        inner: asyncio.Future[None] = driver.loop.create_future()
        waiting = driver.tasks.spawn("wait", driver.tasks.timeout(1000, inner, "x"))
        await turns(2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert inner.cancelled()

    driver.run(program())


def test_what_an_abandoned_coroutine_raises_is_not_lost(driver: Driver) -> None:
    error = ValueError("in the clean-up")

    async def stubborn() -> None:
        try:
            await driver.loop.create_future()
        finally:
            raise error

    async def lost() -> None:
        try:
            await driver.loop.create_future()
        finally:
            raise ConnectionLost("an operating error")

    async def program() -> None:
        for coroutine in (stubborn(), lost()):
            with pytest.raises(RequestTimeout):
                await driver.tasks.timeout(1, coroutine, "stubborn")
        await turns(3)

    driver.run(program())
    assert driver.failures == [("stubborn", error)]


def test_gather_ordered_keeps_order_and_raises_the_first_error_after_all_ended(
    driver: Driver,
) -> None:
    ended: list[int] = []

    async def item(number: int, waits: int, *, fail: bool = False) -> int:
        await turns(waits)
        ended.append(number)
        if fail:
            raise ValueError(f"item {number}")
        return number

    async def program() -> None:
        assert await driver.tasks.gather_ordered(item(0, 5), item(1, 1), item(2, 3)) == [0, 1, 2]
        assert ended == [1, 2, 0]
        ended.clear()
        with pytest.raises(ValueError, match="item 1"):
            await driver.tasks.gather_ordered(
                item(0, 1), item(1, 4, fail=True), item(2, 1, fail=True), item(3, 9)
            )
        assert ended == [0, 2, 1, 3]

    driver.run(program())


def test_cancelling_gather_ordered_cancels_its_items_and_loses_no_error(driver: Driver) -> None:
    cancelled: list[int] = []
    error = ValueError("early")

    async def item(number: int) -> None:
        try:
            await driver.loop.create_future()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def fails() -> None:
        raise error

    async def program() -> None:
        gathering = driver.tasks.spawn(
            "gather", driver.tasks.gather_ordered(item(0), fails(), item(2))
        )
        await turns(3)
        gathering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathering
        await turns(2)

    driver.run(program())
    assert cancelled == [0, 2]
    assert driver.failures == [("gather_ordered", error)]


def test_close_cancels_in_order_of_creation_and_waits_for_each(driver: Driver) -> None:
    ended: list[str] = []

    async def flow(name: str) -> None:
        try:
            await driver.loop.create_future()
        finally:
            await turns(2)
            ended.append(name)

    async def program() -> None:
        for name in ("c", "a", "b"):
            driver.tasks.spawn(name, flow(name))
        await turns(2)
        await driver.tasks.close()
        assert ended == ["c", "a", "b"]

    driver.run(program())
    assert driver.failures == []


def test_close_from_a_task_of_its_own_does_not_cancel_itself(driver: Driver) -> None:
    async def program() -> None:
        async def closer() -> str:
            await driver.tasks.close()
            return "closed"

        assert await driver.tasks.spawn("closer", closer()) == "closed"

    driver.run(program())


def test_a_signal_wakes_its_waiter_and_a_set_before_the_wait_is_kept(driver: Driver) -> None:
    async def program() -> None:
        signal = Signal(driver.loop)
        signal.set()
        await signal.wait()
        waiting = driver.tasks.spawn("wait", signal.wait())
        await turns(3)
        assert not waiting.done()
        signal.set()
        signal.set()
        await waiting
        again = driver.tasks.spawn("wait", signal.wait())
        await turns(3)
        assert not again.done(), "two sets before one wait wake once"
        again.cancel()
        await turns(2)
        signal.set()
        await signal.wait()

    driver.run(program())


def test_a_shielded_task_gives_its_result_and_its_error(driver: Driver) -> None:
    async def succeeds() -> int:
        await turns(2)
        return 7

    async def fails() -> int:
        await turns(2)
        raise ConnectionLost("gone")

    async def program() -> None:
        assert await shield(asyncio.Task(succeeds())) == 7
        with pytest.raises(ConnectionLost, match="gone"):
            await shield(asyncio.Task(fails()))

    driver.run(program())
    assert driver.failures == []


@pytest.mark.parametrize("error", [None, ConnectionLost("gone")])
def test_a_shielded_task_goes_on_when_its_waiter_is_cancelled(
    driver: Driver, error: Exception | None
) -> None:
    async def inner() -> int:
        await turns(4)
        if error is not None:
            raise error
        return 7

    async def program() -> None:
        task = asyncio.Task(inner())
        waiting, other = shield(task), shield(task)
        await turns(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not task.done()
        if error is None:
            assert await other == 7
        else:
            with pytest.raises(ConnectionLost):
                await other

    driver.run(program())
    assert driver.failures == []


def test_the_waiter_of_a_shielded_task_learns_that_the_task_was_cancelled(driver: Driver) -> None:
    async def program() -> None:
        task = asyncio.Task(turns(100))
        waiting = shield(task)
        await turns(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert task.cancelled() and waiting.cancelled()

    driver.run(program())
