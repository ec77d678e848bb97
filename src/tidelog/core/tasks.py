"""Tasks that behave equally under asyncio and under virtual time.

`asyncio.wait`, `gather`, `TaskGroup` and `timeout` handle tasks in the order of object addresses,
or use the running loop's clock. The callbacks of `asyncio.shield` differ between Python versions.
The functions of this module depend neither on the loop's clock nor on the Python version. The error
of a failed task goes to the `on_failure` of its `Tasks`, which stops the broker
(DESIGN.md, rule 9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tidelog.core.errors import RequestTimeout, TidelogError
from tidelog.core.ports import Clock

T = TypeVar("T")


class Tasks:
    """The long-running tasks of one node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._on_failure = on_failure
        self._running: dict[asyncio.Task[Any], str] = {}

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task; report its failure, but not its cancellation, under `name`."""
        task = asyncio.Task(coroutine, loop=self._loop, name=name)
        self._running[task] = name
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        name = self._running.pop(task, "")
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._on_failure(name, error)

    async def sleep(self, delay_ms: float) -> None:
        """Wait; cancellable."""
        future: asyncio.Future[None] = self._loop.create_future()
        timer = self._clock.call_later(delay_ms, lambda: _resolve(future))
        try:
            await future
        finally:
            timer.cancel()

    async def timeout(self, delay_ms: float, awaitable: Awaitable[T], what: str) -> T:
        """Return the result of `awaitable`; raise RequestTimeout naming `what` if it is late.

        On timeout, the awaited task or future is cancelled, unless it is already done. If a
        cancelled coroutine raises an error instead of ending, the error is reported as a failure of
        `what`. If the cancelled coroutine raises an operating error, the error is dropped, because
        after a timeout the outcome is unknown anyway.
        """
        inner = (
            awaitable
            if isinstance(awaitable, asyncio.Future)
            else asyncio.Task(_drive(awaitable), loop=self._loop, name=f"timeout({what})")
        )
        done: asyncio.Future[bool] = self._loop.create_future()
        inner.add_done_callback(lambda _: _resolve_with(done, True))
        timer = self._clock.call_later(delay_ms, lambda: _resolve_with(done, False))
        try:
            in_time = await done
        except asyncio.CancelledError:
            self._abandon(inner, what)
            raise
        finally:
            timer.cancel()
        if not in_time and not inner.done():
            self._abandon(inner, what)
            raise RequestTimeout(f"{what}: no answer within {delay_ms:g} ms")
        return inner.result()

    def _abandon(self, task: asyncio.Future[Any], what: str) -> None:
        """Cancel a task whose result no caller awaits, and report an error that it raises."""

        def ended(_: asyncio.Future[Any]) -> None:
            if not task.cancelled():
                error = task.exception()
                if error is not None and not isinstance(error, TidelogError):
                    self._on_failure(what, error)

        task.cancel()
        task.add_done_callback(ended)

    async def gather_ordered(self, *awaitables: Awaitable[T]) -> list[T]:
        """Return the results of all awaitables, in the order of the arguments.

        If any awaitable fails, the first error in the order of the arguments is raised after all
        have ended.
        """
        tasks = [
            asyncio.Task(_drive(item), loop=self._loop, name="gather_ordered")
            for item in awaitables
        ]
        results: list[T] = []
        first_error: BaseException | None = None
        try:
            for task in tasks:
                try:
                    results.append(await task)
                except Exception as error:
                    first_error = first_error or error
        except asyncio.CancelledError:
            for task in tasks:
                self._abandon(task, "gather_ordered")
            raise
        if first_error is not None:
            raise first_error
        return results

    async def close(self) -> None:
        """Cancel the running tasks, in order of creation, and wait for each to end."""
        current = asyncio.current_task(self._loop)
        for task in [task for task in self._running if task is not current]:
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                if current is not None and current.cancelling():
                    raise
            except Exception:  # `_ended` has already reported the error
                continue


def shield(task: asyncio.Task[T]) -> asyncio.Future[T]:
    """Return a future with the outcome of a task; to cancel the future does not cancel the task."""
    outer: asyncio.Future[T] = task.get_loop().create_future()

    def inner_done(inner: asyncio.Task[T]) -> None:
        if outer.cancelled():
            if not inner.cancelled():
                inner.exception()  # no caller awaits the future
        elif inner.cancelled():
            outer.cancel()
        elif (error := inner.exception()) is not None:
            outer.set_exception(error)
        else:
            outer.set_result(inner.result())

    task.add_done_callback(inner_done)
    outer.add_done_callback(lambda _: task.remove_done_callback(inner_done))
    return outer


async def _drive(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _resolve_with(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


class Signal:
    """A wake-up for one waiting coroutine; `set` before `wait` is remembered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiting coroutine, or the next coroutine that calls `wait`."""
        self._set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until the signal is set, then clear it; only one coroutine may wait."""
        if not self._set:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._set = False
