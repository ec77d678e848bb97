"""The real clock and the real source of randomness.

Monotonic time is the kernel's and compares within one machine only; wall time may jump. Monotonic
time runs on while the machine is suspended, as sessions with a store on another machine do (V47).
Timers of the loop do not. Under simulation `tidelog.sim` provides both.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

#: Systems other than Linux have only their monotonic clock.
_MONOTONIC: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clock on the loop of this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic_ns(self) -> int:
        """Return nanoseconds of CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(_MONOTONIC)

    def monotonic_ms(self) -> int:
        """Return milliseconds of CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back on the loop after `delay_ms`."""
        return self._loop.call_later(delay_ms / 1000, callback)


def system_random() -> random.Random:
    """Return randomness seeded by the operating system."""
    return random.Random()  # seeded from os.urandom
