"""Flushes and truncations of a log that wait while its future log replaces it (D11).

A flush or truncation of the current log's files would have no effect on the future log's files.
Flushes and truncations therefore wait until the replacement ends, and then run on the new log, or
on the old log if the replacement was abandoned. This module does not hold appends: they stay
planned appends of the old log until the replacement ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tidelog.core.completion import Completion

#: The type of the log on which the requests are finally carried out.
L = TypeVar("L")


class HeldRequests(Generic[L]):
    """The flushes and truncations that wait for the end of a log's replacement, in order."""

    __slots__ = ("_going_on", "_waiting")

    def __init__(self) -> None:
        self._going_on: L | None = None
        self._waiting: list[tuple[Callable[[L], Completion[None]], Completion[None]]] = []

    def later(self, request: Callable[[L], Completion[None]]) -> Completion[None]:
        """Hold a flush or truncation until the log's replacement has ended; return its
        completion.
        """
        if self._going_on is not None:
            return request(self._going_on)
        completion: Completion[None] = Completion()
        self._waiting.append((request, completion))
        return completion

    def make(self, log: L) -> None:
        """Carry out all held requests on `log`; carry out each later request at once, too."""
        self._going_on = log
        waiting, self._waiting = self._waiting, []
        for request, completion in waiting:
            try:
                done = request(log)
            except Exception as error:
                completion.fail(error)
            else:
                _pass_on(done, completion)


def _pass_on(done: Completion[None], completion: Completion[None]) -> None:
    def settle(finished: Completion[None]) -> None:
        if finished.error is not None:
            completion.fail(finished.error)
        else:
            completion.resolve(None)

    done.then(settle)
