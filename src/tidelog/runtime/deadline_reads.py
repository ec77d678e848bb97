"""Reads in threads of their own, for which the caller waits until a deadline.

A read from a broker that hangs may take seconds. The caller goes on at its deadline, and gets the
result of the read later. The threads are daemons, so that a read that hangs does not keep the
process from ending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class DeadlineReads(Generic[K, V]):
    """Reads on threads, each for a key (such as a broker); at most one read of a key runs at a
    time.
    """

    def __init__(self) -> None:
        self._running: set[K] = set()
        self._results: dict[K, V] = {}
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    @property
    def running(self) -> frozenset[K]:
        """The keys whose reads have not ended."""
        with self._changed:
            return frozenset(self._running)

    def begin(self, key: K, read: Callable[[], V]) -> bool:
        """Begin a read; return False if the last read of the key has not ended."""
        with self._changed:
            if key in self._running:
                return False
            self._running.add(key)
        threading.Thread(target=self._run, args=(key, read), name=f"{key}", daemon=True).start()
        return True

    def _run(self, key: K, read: Callable[[], V]) -> None:
        error: BaseException | None = None
        try:
            result = read()
        except BaseException as raised:  # `results` raises the error in the caller's thread
            error = raised
        with self._changed:
            self._running.discard(key)
            if error is None:
                self._results[key] = result
            else:
                self._error = error
            self._changed.notify_all()

    def wait(self, keys: Collection[K], deadline_s: float) -> None:
        """Wait until the reads of `keys` have ended, or until `deadline_s` of time.monotonic."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._running.isdisjoint(keys), max(0.0, deadline_s - time.monotonic())
            )

    def results(self) -> dict[K, V]:
        """Return the results since the last call; raise the error of a read that failed."""
        with self._changed:
            error, self._error = self._error, None
            found, self._results = self._results, {}
        if error is not None:
            raise error
        return found
