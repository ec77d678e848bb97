"""The port for time and timers, which `ports` offers together with the other ports.

The module is separate from `ports`, so that `ports` can import modules that need a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the timer; harmless if it has fired."""


class Clock(Protocol):
    """A clock, with monotonic time for durations, and wall-clock time for timestamps only."""

    def monotonic_ns(self) -> int:
        """Return monotonic nanoseconds, which are comparable within one process only."""

    def monotonic_ms(self) -> int:
        """Return `monotonic_ns` in whole milliseconds."""

    def wall_ms(self) -> int:
        """Return wall-clock milliseconds since 1970, which may jump."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the loop after `delay_ms`, never before this call returns."""
