"""Callbacks at the beginning of each turn of the real loop.

asyncio has no hook at the start of a turn. Only the loop's selector runs between the wait and the
callbacks of a turn. The loop of a broker has a selector that calls a registered callback after each
wait.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable


class TurnSelector(selectors.DefaultSelector):
    """The selector of one loop, which runs a callback first in every turn."""

    def __init__(self) -> None:
        super().__init__()
        self._wait = super().select
        self._callbacks: list[Callable[[], None]] = []

    def on_turn(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each wait, before the timers and events of the turn."""
        self._callbacks.append(callback)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait like the system's selector, then run the callback."""
        ready = self._wait(timeout)
        for callback in self._callbacks:
            callback()
        return ready
