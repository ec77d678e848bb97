"""Completion: the result of an operation that may already be done.

A future always costs a turn of the loop; most file operations of a quick disk are done when
`submit` returns (DESIGN.md, rule 3). A done completion runs its callbacks at once and in order. A
pending one runs them when the lane delivers it, on the loop. Not thread-safe: resolved on the loop
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Completion(Generic[T]):
    """Result of one operation: pending, a value, or an error."""

    __slots__ = ("_callbacks", "_done", "_error", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Completion[T]], None]] = []

    @classmethod
    def of(cls, value: T) -> Completion[T]:
        """Return a completion that is done."""
        completion = cls()
        completion._done = True
        completion._value = value
        return completion

    @classmethod
    def failed(cls, error: BaseException) -> Completion[T]:
        """Return a completion that has failed."""
        completion = cls()
        completion._done = True
        completion._error = error
        return completion

    @property
    def done(self) -> bool:
        """Whether the completion has a value or an error."""
        return self._done

    @property
    def error(self) -> BaseException | None:
        """The error, or None while pending or when there is a value."""
        return self._error

    def result(self) -> T:
        """Return the value; raise the error, or RuntimeError while pending."""
        if not self._done:
            raise RuntimeError("the completion is pending")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def resolve(self, value: T) -> None:
        """Deliver the value and run the callbacks."""
        self._deliver(value, None)

    def fail(self, error: BaseException) -> None:
        """Deliver an error and run the callbacks."""
        self._deliver(None, error)

    def then(self, callback: Callable[[Completion[T]], None]) -> None:
        """Call `callback(self)` when done: at once if it is done already."""
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[object, None, T]:
        if not self._done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: Completion[T]) -> None:
                if not future.done():
                    future.set_result(None)

            self._callbacks.append(wake)
            yield from future
        return self.result()

    def _deliver(self, value: T | None, error: BaseException | None) -> None:
        if self._done:
            raise RuntimeError("the completion was delivered already")
        self._done = True
        self._value = value
        self._error = error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
