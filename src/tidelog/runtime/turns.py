"""Turns of the real loop: callbacks that come first in each of them.

asyncio offers no hook at the start of a turn. Its selector is the one place that runs between the
wait and the callbacks. So the loop of a broker gets a selector that calls back after each wait.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable


class TurnSelector(selectors.DefaultSelector):
    """The selector of one loop; it calls back first in every turn."""

    def __init__(self) -> None:
        super().__init__()
        self._wait = super().select
        self._callbacks: list[Callable[[], None]] = []

    def on_turn(self, callback: Callable[[], None]) -> None:
        """Call back after each wait, before timers and events of that turn."""
        self._callbacks.append(callback)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the system's selector does, then call back."""
        ready = self._wait(timeout)
        for callback in self._callbacks:
            callback()
        return ready
