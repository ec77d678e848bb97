"""Completions: results of operations that may already be done.

A future always costs a turn of the loop, but most file operations on a fast disk are done when
`submit` returns (DESIGN.md, rule 3). A completion that is done runs its callbacks at once and in
order. A pending completion runs its callbacks on the loop when the operation's result arrives.
Completions are not thread-safe: only the loop may resolve them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class Completion(Generic[T]):
    """Result of one operation: pending, a value, or an error.

    Each append makes several completions, so `done` and `error` are attributes, which cost less
    than calls. Only this class sets `done` and `error`.
    """

    __slots__ = ("_callbacks", "_value", "done", "error")

    def __init__(self) -> None:
        #: Whether the completion has a value or an error.
        self.done = False
        self._value: T | None = None
        #: The error; None while the completion is pending or when it has a value.
        self.error: BaseException | None = None
        self._callbacks: list[Callable[[Completion[T]], None]] | None = None

    @classmethod
    def of(cls, value: T) -> Completion[T]:
        """Return a completion that already has this value."""
        completion = cls()
        completion.done = True
        completion._value = value
        return completion

    @classmethod
    def failed(cls, error: BaseException) -> Completion[T]:
        """Return a completion that already has this error."""
        completion = cls()
        completion.done = True
        completion.error = error
        return completion

    def result(self) -> T:
        """Return the value; raise the error, or RuntimeError while pending."""
        if not self.done:
            raise RuntimeError("the completion is pending")
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    def resolve(self, value: T) -> None:
        """Deliver the value and run the callbacks."""
        self._deliver(value, None)

    def fail(self, error: BaseException) -> None:
        """Deliver an error and run the callbacks."""
        self._deliver(None, error)

    def then(self, callback: Callable[[Completion[T]], None]) -> None:
        """Call `callback(self)` when the completion is done: at once if it is done already."""
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[object, None, T]:
        if not self.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: Completion[T]) -> None:
                if not future.done():
                    future.set_result(None)

            self.then(wake)
            yield from future
        return self.result()

    def _deliver(self, value: T | None, error: BaseException | None) -> None:
        if self.done:
            raise RuntimeError("the completion was delivered already")
        self.done = True
        self._value = value
        self.error = error
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                callback(self)
