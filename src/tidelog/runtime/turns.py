"""Callbacks at the beginning of each turn of a broker's asyncio event loop, and turn durations.

asyncio has no hook at the start of a turn. In a turn, only the loop's selector runs between the
wait for events and asyncio's callbacks. The loop of a broker has a selector that calls registered
callbacks after each wait.
"""

from __future__ import annotations

import selectors
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.core.metrics import LATENCY_BOUNDS_US

if TYPE_CHECKING:
    from tidelog.core.metrics import Sample

_NS_PER_US = 1_000


class TurnSelector(selectors.DefaultSelector):
    """The selector of one event loop, which runs callbacks first in every turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._wait = super().select
        self._callbacks: list[Callable[[], None]] = []
        #: Time in ns that the loop spent waiting for events.
        self.waited_ns = 0
        #: Monotonic time (ns) at which the loop's last wait for events ended.
        self._turned_ns = 0
        #: The histogram of the turns' durations; None if durations are not measured.
        self._times: Sample | None = None

    def measure(self, times: Sample) -> None:
        """Add the duration of every later turn to a histogram with bounds `LATENCY_BOUNDS_US`."""
        self._turned_ns = time.monotonic_ns()
        self._times = times

    def on_turn(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each wait for events, before the loop handles timers and events."""
        self._callbacks.append(callback)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait like the system's selector, then run the registered callbacks."""
        times = self._times
        if times is None:
            ready = self._wait(timeout)
        else:
            begin_ns = time.monotonic_ns()
            turn_us = (begin_ns - self._turned_ns) // _NS_PER_US
            times.value += turn_us
            times.buckets[bisect_left(LATENCY_BOUNDS_US, turn_us)] += 1
            ready = self._wait(timeout)
            self._turned_ns = end_ns = time.monotonic_ns()
            self.waited_ns += end_ns - begin_ns
        for callback in self._callbacks:
            callback()
        return ready
