"""Pauses that may end early, for a loop that works periodically and after each event.

If an event comes while the loop works, the loop's next pause ends at once. All methods are called
on the loop.
"""

from __future__ import annotations

from tidelog.core.completion import Completion
from tidelog.core.ports import Clock


class LoopPauses:
    """The pauses of one background loop, which works periodically and after each event."""

    __slots__ = ("_clock", "_is_woken", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_woken = False
        self._waiting: Completion[None] | None = None

    async def wait(self, longest_ms: float) -> None:
        """Return after `longest_ms`, or earlier after `wake`; cancellable."""
        if not self._is_woken:
            self._waiting = Completion()
            timer = self._clock.call_later(longest_ms, self.wake)
            try:
                await self._waiting
            finally:
                self._waiting = None
                timer.cancel()
        self._is_woken = False

    def wake(self) -> None:
        """End the current pause, or the next pause if the loop is working."""
        self._is_woken = True
        if self._waiting is not None and not self._waiting.done:
            self._waiting.resolve(None)
