"""A process without an event loop: its clock, its tracer, and its death at a port call.

Time stands still until the world advances it, and due timers then fire in order. The process counts
the calls of its ports (`core.ports`), and reports each call before the call has an effect. The
world may plan that the process dies at a certain call. After its death, each call raises NodeDead.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from tidelog.core.errors import NodeDead
from tidelog.core.ports import TimerHandle

T = TypeVar("T")

#: Wall clock at the beginning of a history: 2024-01-01T00:00:00Z.
WALL_EPOCH_MS = 1_704_067_200_000
_NS_PER_MS = 1_000_000


class _Timer:
    """A timer of a `SteppedClock`; `callback` is None if the timer has fired or is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the timer."""
        self.callback = None


def _nothing() -> None:
    """Do nothing after a timer."""


class SteppedClock:
    """A clock that stands still until `advance`."""

    def __init__(self, now_ms: int = WALL_EPOCH_MS) -> None:
        self.now_ms = now_ms
        #: Called after each timer that fires.
        self.on_fired: Callable[[], None] = _nothing
        self._timers: list[tuple[int, int, _Timer]] = []
        self._set = 0

    def monotonic_ns(self) -> int:
        """Return the clock's time in ns."""
        return self.now_ms * _NS_PER_MS

    def monotonic_ms(self) -> int:
        """Return the clock's time."""
        return self.now_ms

    def wall_ms(self) -> int:
        """Return the clock's time."""
        return self.now_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` when `advance` reaches its time."""
        timer = _Timer(callback)
        self._set += 1
        heapq.heappush(self._timers, (self.now_ms + int(delay_ms), self._set, timer))
        return timer

    def advance(self, delay_ms: int) -> None:
        """Let time pass; fire the timers that are due."""
        end_ms = self.now_ms + delay_ms
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self.now_ms = max(self.now_ms, due_ms)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
                self.on_fired()
        self.now_ms = end_ms


class SmallTracer:
    """A tracer that counts events and marks (reached rare states), and passes log lines on."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say
        #: Number of events and marks by name.
        self.counts: Counter[str] = Counter()

    def event(self, name: str, /, **fields: Any) -> None:
        """Count the event."""
        self.counts[name] += 1

    def mark(self, name: str, /) -> None:
        """Count the mark."""
        self.counts[name] += 1

    def log(self, logger: str, level: int, message: str, /) -> None:
        """Pass the line on."""
        if self._say is not None:
            self._say(message)


class SmallProcess:
    """One process, from its start to its death."""

    def __init__(self, clock: SteppedClock, on_call: Callable[[str], None] | None = None) -> None:
        """`on_call` gets the name of each port call, before the call has an effect."""
        self.clock = clock
        self.on_call = on_call
        self.alive = True
        #: Whether the process died without a power loss.
        self.died_with_page_cache = False
        self.calls = 0
        #: The number of the call at which the process dies; 0 if no death is planned.
        self.dies_at = 0

    def check_alive(self) -> None:
        """Raise NodeDead after death."""
        if not self.alive:
            raise NodeDead("the process is dead")

    def port_call(self, name: str) -> None:
        """Count a call of a port; raise NodeDead if the process is dead or dies now."""
        self.check_alive()
        self.calls += 1
        if self.on_call is not None:
            self.on_call(name)
        if self.calls == self.dies_at:
            self.die()
            raise NodeDead(f"the process died at call {self.calls} ({name})")

    def die(self) -> None:
        """End the process."""
        self.alive = False
        self.on_call = None


def completed(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits; return its result.

    Raises AssertionError if the coroutine waits, because no operation of an eager lane is pending.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    coroutine.close()
    raise AssertionError("a coroutine waits for an operation that nothing will finish")
