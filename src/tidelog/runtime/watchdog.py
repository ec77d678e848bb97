"""A watchdog that ends a process whose loop hangs (DESIGN.md, rule 4).

The loop records the time at every tick, and a thread checks the age of that time. A broker whose
loop has been stuck for the session timeout has lost its session, so the process ends at once. The
watchdog ignores writes that hang on a disk's thread: the loop fails that log directory
(`log.directory_speed`, D13). If the whole process was stopped (SIGSTOP, a suspended machine), the
watchdog's own sleep is late, too. After a stop of the process, the watchdog restarts the loop's
timeout, and the broker serves no requests until the store confirms its session
(`broker.membership.self_fencing`, V47).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

_CHECKS_PER_TIMEOUT = 10


class Watchdog:
    """A thread that reports when one event loop hangs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeout_ms: int,
        on_hang: Callable[[str], None],
    ) -> None:
        """The watchdog's thread calls `on_hang` with the hanging call and its duration."""
        self._loop = loop
        self._timeout_ms = timeout_ms
        self._on_hang = on_hang
        self._last_tick_ns = time.monotonic_ns()
        #: Monotonic time from which the loop's silence is measured: the end of the last time in
        #: which the whole process was stopped.
        self._counts_from_ns = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start the watchdog; called on the loop."""
        self._tick()
        self._thread.start()

    def stop(self) -> None:
        """End the watchdog's thread."""
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
                # The watchdog's own thread did not run in time, so the whole process was stopped.
                self._counts_from_ns = now_ns - interval_ns
                continue
            silent_ms = self._ms_since(self._last_tick_ns, now_ns)
            if silent_ms >= self._timeout_ms:
                self._on_hang(f"the event loop has not turned for {silent_ms} ms")

    def _ms_since(self, moment_ns: int, now_ns: int) -> int:
        return (now_ns - max(moment_ns, self._counts_from_ns)) // 1_000_000
