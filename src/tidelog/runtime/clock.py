"""The real clock and the real source of randomness.

Monotonic time comes from the kernel and is comparable only within one machine; wall-clock time may
jump. Monotonic time advances while the machine is suspended, because sessions with a store on
another machine age during that time, too (V47). Timers of the event loop do not advance while the
machine is suspended. In simulation, `tidelog.sim` provides clock and randomness.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final

#: The id of the kernel's clock; systems other than Linux have only CLOCK_MONOTONIC.
_MONOTONIC: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The system's clocks, with timers on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Returns nanoseconds of CLOCK_BOOTTIME. Every request reads the clock several times, so
        #: this attribute is a fast C function.
        self.monotonic_ns: Callable[[], int] = partial(time.clock_gettime_ns, _MONOTONIC)

    def monotonic_ms(self) -> int:
        """Return milliseconds of CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `callback` on the loop after `delay_ms`."""
        return self._loop.call_later(delay_ms / 1000, callback)


def system_random() -> random.Random:
    """Return a random number generator that the operating system seeds."""
    return random.Random()  # seeded from os.urandom
