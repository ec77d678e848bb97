"""Ends a process whose loop does not turn, or whose disk does not answer (DESIGN.md, rule 4).

The loop leaves the time at every tick; a thread looks at it. A loop that has not turned for the
session timeout has lost its session and must not go on as if nothing had happened when it turns
again: the process ends at once. So it does when a write that was handed to a thread, because the
disk is slow, has not ended for as long: the loop goes on, but what the broker leads does not, and
no other broker would take over. A process that was stopped as a whole (SIGSTOP, a suspended
machine) differs in that the thread's own sleep is late: all get their time again, and the broker
serves nothing until the store has confirmed its session (`broker.membership.self_fencing`, V47).
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
        on_hang: Callable[[str], None],
    ) -> None:
        """`on_hang` is called on the watchdog's thread, with what hangs since when."""
        self._loop = loop
        self._timeout_ms = timeout_ms
        self._on_hang = on_hang
        self._last_tick_ns = time.monotonic_ns()
        #: Time before this does not count: the whole process did not run.
        self._counts_from_ns = 0
        self._calls: dict[str, Callable[[], int]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin; to be called on the loop."""
        self._tick()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()

    def watch_calls(self, name: str, under_way_since_ns: Callable[[], int]) -> None:
        """Watch the calls of a thread too: the monotonic time at which the present one began, 0
        while there is none. To be called before `start`."""
        self._calls[name] = under_way_since_ns

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
                self._counts_from_ns = now_ns - interval_ns
                continue
            silent_ms = self._ms_since(self._last_tick_ns, now_ns)
            if silent_ms >= self._timeout_ms:
                self._on_hang(f"the event loop has not turned for {silent_ms} ms")
            for name, under_way_since_ns in self._calls.items():
                began_ns = under_way_since_ns()
                if began_ns and self._ms_since(began_ns, now_ns) >= self._timeout_ms:
                    silent_ms = self._ms_since(began_ns, now_ns)
                    self._on_hang(f"{name} has not answered for {silent_ms} ms")

    def _ms_since(self, moment_ns: int, now_ns: int) -> int:
        return (now_ns - max(moment_ns, self._counts_from_ns)) // 1_000_000
