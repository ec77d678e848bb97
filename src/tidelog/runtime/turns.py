"""Callbacks at the beginning of each turn of a broker's asyncio event loop.

asyncio has no hook at the start of a turn. In a turn, only the loop's selector runs between the
wait for events and asyncio's callbacks. The loop of a broker has a selector that calls registered
callbacks after each wait.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable


class TurnSelector(selectors.DefaultSelector):
    """The selector of one event loop, which runs callbacks first in every turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._wait = super().select
        self._callbacks: list[Callable[[], None]] = []

    def on_turn(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each wait for events, before the loop handles timers and events."""
        self._callbacks.append(callback)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait like the system's selector, then run the registered callbacks."""
        ready = self._wait(timeout)
        for callback in self._callbacks:
            callback()
        return ready
