"""Ends a process whose loop does not turn (DESIGN.md, rule 4).

The loop leaves the time at every tick; a thread looks at it. A loop that has not turned for the
session timeout has lost its session and must not go on as if nothing had happened when it turns
again: the process ends at once. A process that was stopped as a whole (SIGSTOP, a suspended
machine) is told apart by the thread's own sleep being late: then the loop gets its time again, and
the store tells it that its session is over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

_CHECKS_PER_TIMEOUT = 10


class Watchdog:
    """Watches one loop from a thread of its own."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeout_ms: int,
        on_hang: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._timeout_ms = timeout_ms
        self._on_hang = on_hang
        self._last_tick_ns = time.monotonic_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin; to be called on the loop."""
        self._tick()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()

    def _tick(self) -> None:
        self._last_tick_ns = time.monotonic_ns()
        if not self._stop.is_set():
            self._loop.call_later(self._timeout_ms / _CHECKS_PER_TIMEOUT / 1000, self._tick)

    def _watch(self) -> None:
        interval_ns = self._timeout_ms * 1_000_000 // _CHECKS_PER_TIMEOUT
        previous_ns = time.monotonic_ns()
        while not self._stop.wait(interval_ns / 1e9):
            now_ns = time.monotonic_ns()
            stopped_ns = now_ns - previous_ns - interval_ns
            previous_ns = now_ns
            if stopped_ns > interval_ns * 2:
                # We did not run either: the process was stopped, not the loop.
                self._last_tick_ns = max(self._last_tick_ns, now_ns - interval_ns)
                continue
            silent_ms = (now_ns - self._last_tick_ns) // 1_000_000
            if silent_ms >= self._timeout_ms:
                self._on_hang(silent_ms)
