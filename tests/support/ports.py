"""Fakes of the ports of `tidelog.core.ports` that are needed without a simulator: time and traces.

The simulator has the others: files, lanes, networks and randomness of a simulated node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ManualTimer:
    """A timer of a clock that stands; `callback` is None once it was cancelled or has fired."""

    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never call back."""
        self.callback = None


class StandingClock:
    """Time that stands still. Classes below it say how it goes on."""

    def __init__(self, now_ms: int = 1_000) -> None:
        self.now_ms = now_ms
        self.timers: list[ManualTimer] = []

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(self.now_ms + delay_ms, callback)
        self.timers.append(timer)
        return timer

    @property
    def armed(self) -> list[ManualTimer]:
        """The timers that have neither fired nor been cancelled."""
        return [timer for timer in self.timers if timer.callback is not None]

    def fire_next(self, end_ms: int) -> bool:
        """Fire the timer that is due first, at its time; False where none is due by `end_ms`."""
        self.timers = self.armed
        due = [timer for timer in self.timers if timer.due_ms <= end_ms]
        if not due:
            return False
        timer = min(due, key=lambda each: each.due_ms)
        self.timers.remove(timer)
        self.now_ms = max(self.now_ms, int(timer.due_ms))
        callback, timer.callback = timer.callback, None
        assert callback is not None
        callback()
        return True


class ManualClock(StandingClock):
    """Time that stands until `advance`, which fires what falls due, in order."""

    def advance(self, delay_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + delay_ms
        while self.fire_next(end_ms):
            pass
        self.now_ms = end_ms


class FakeTracer:
    """A tracer that remembers events, marks and lines."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.marks: list[str] = []
        self.lines: list[str] = []
        #: The logger of each line.
        self.loggers: list[str] = []

    def event(self, name: str, /, **fields: Any) -> None:
        self.events.append((name, fields))

    def mark(self, name: str, /) -> None:
        self.marks.append(name)

    def log(self, logger: str, level: int, message: str, /) -> None:
        self.lines.append(message)
        self.loggers.append(logger)

    def named(self, name: str) -> list[dict[str, Any]]:
        """The fields of the events of one name."""
        return [fields for event, fields in self.events if event == name]
