"""An event loop that runs only when the world lets it run.

The tasks of all processes of a small world share the loop. `run_ready` runs callbacks in the order
in which they were scheduled, until none is left. Time is the business of `SteppedClock`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, cast

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: More callbacks than this in one call of `run_ready` count as an endless loop.
_MOST_CALLBACKS = 20_000


class _ReadyCall(asyncio.Handle):
    """A callback that the loop runs in its turn, unless `cancel` is called first."""

    __slots__ = ("args", "callback", "context")

    # This method does not call the base class's constructor, because the fields of the base class
    # are not used.
    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context

    def cancel(self) -> None:
        """Cancel the callback."""
        self.callback = None

    def cancelled(self) -> bool:
        """Return whether the callback was cancelled."""
        return self.callback is None

    def __repr__(self) -> str:
        return f"<ready {self.callback}>"


class ReadyLoop(asyncio.AbstractEventLoop):
    """The event loop of a small world."""

    def __init__(self) -> None:
        self._ready: deque[_ReadyCall] = deque()
        #: Errors that no task has handled.
        self.errors: list[BaseException] = []

    def run_ready(self) -> None:
        """Run all scheduled callbacks, and the callbacks that they schedule."""
        ready = self._ready
        left = _MOST_CALLBACKS
        while ready:
            call = ready.popleft()
            callback = call.callback
            if callback is None:
                continue
            if call.context is None:
                callback(*call.args)
            else:
                call.context.run(callback, *call.args)
            left -= 1
            if not left:
                raise RuntimeError("callbacks without end")

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        call = _ReadyCall(callback, args, context)
        self._ready.append(call)
        return call

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        text = None if name is None else str(name)
        return asyncio.Task(cast(Coroutine[Any, Any, T], coro), loop=self, name=text)

    def time(self) -> float:
        raise RuntimeError("a stepped loop has no clock")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self.errors.append(error)
