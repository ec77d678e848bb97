"""The port to time, and its timers; `ports` offers both beside the other ports.

A module of its own, so that `ports` may name what needs a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the timer; harmless if it has fired."""


class Clock(Protocol):
    """Time: monotonic for durations, wall time for timestamps in records and nodes only."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds that never go back; comparable within one process only."""

    def monotonic_ms(self) -> int:
        """Return `monotonic_ns` in whole milliseconds."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; may jump."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back on the loop after `delay_ms`, never before this call returns."""
