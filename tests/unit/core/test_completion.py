"""A completion: callbacks at once when done, awaitable, delivered once."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.core.conftest import Driver

from tidelog.core.completion import Completion


def test_a_done_completion_calls_back_at_once() -> None:
    seen: list[object] = []
    done: Completion[int] = Completion.of(5)
    done.then(lambda completion: seen.append(completion.result()))
    assert seen == [5]
    failed: Completion[int] = Completion.failed(ValueError("no"))
    failed.then(lambda completion: seen.append(str(completion.error)))
    assert seen == [5, "no"]
    with pytest.raises(ValueError, match="no"):
        failed.result()


def test_a_pending_completion_calls_back_in_order_when_delivered() -> None:
    seen: list[str] = []
    pending: Completion[str] = Completion()
    pending.then(lambda completion: seen.append("1" + completion.result()))
    pending.then(lambda completion: seen.append("2" + completion.result()))
    with pytest.raises(RuntimeError, match="pending"):
        pending.result()
    assert not pending.done
    pending.resolve("x")
    assert seen == ["1x", "2x"]
    with pytest.raises(RuntimeError, match="already"):
        pending.fail(ValueError())


def test_a_callback_may_add_callbacks() -> None:
    seen: list[str] = []
    pending: Completion[None] = Completion()
    pending.then(lambda _: pending.then(lambda _: seen.append("inner")))
    pending.resolve(None)
    assert seen == ["inner"]


def test_awaiting_gives_the_value_or_the_error_now_or_later(driver: Driver) -> None:
    async def program() -> None:
        assert await Completion.of(1) == 1
        with pytest.raises(OSError, match="bad"):
            await Completion.failed(OSError("bad"))
        later: Completion[str] = Completion()
        driver.clock.call_later(1, lambda: later.resolve("late"))
        assert await later == "late"
        failing: Completion[str] = Completion()
        driver.clock.call_later(1, lambda: failing.fail(OSError("late and bad")))
        with pytest.raises(OSError, match="late and bad"):
            await failing

    driver.run(program())


def test_a_cancelled_wait_leaves_the_completion_alone(driver: Driver) -> None:
    async def program() -> None:
        pending: Completion[int] = Completion()

        async def wait() -> int:
            return await pending

        first = driver.tasks.spawn("first", wait())
        second = driver.tasks.spawn("second", wait())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        pending.resolve(7)
        assert await second == 7
        assert first.cancelled()

    driver.run(program())
