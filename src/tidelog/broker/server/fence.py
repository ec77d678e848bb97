"""The fence of this broker: whether the broker may serve, as connections and timeouts see it (V47).

`membership.self_fencing` decides when the broker is fenced; this module holds the state for all
other parts.
"""

from __future__ import annotations

from collections.abc import Callable


class Fence:
    """The fence of one broker, which a gap between two turns of the event loop closes."""

    def __init__(self) -> None:
        #: The monotonic time from which on the event loop's next turn is late; 0 before the watch
        #: begins.
        self.late_from_ms = 0
        self.is_fenced = False
        #: Whether the broker is fenced without knowing if its session has expired.
        self.is_in_doubt = False
        self._on_turn: Callable[[], None] | None = None

    def watch(self, on_turn: Callable[[], None]) -> None:
        """Call `on_turn` whenever a read event begins after `late_from_ms`."""
        self._on_turn = on_turn

    def turned(self) -> None:
        """Report a late turn of the event loop, or a late read event within a turn."""
        if self._on_turn is not None:
            self._on_turn()
