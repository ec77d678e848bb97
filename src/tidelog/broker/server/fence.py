"""The fence of this broker: whether it may serve, as connections and timeouts see it (V47).

`membership.self_fencing` decides; this module holds the state for all parts that must ask.
"""

from __future__ import annotations

from collections.abc import Callable


class Fence:
    """The fence of one broker; open until the first gap."""

    def __init__(self) -> None:
        #: The monotonic time from which on a turn of the loop comes too late; 0 until watched.
        self.late_from_ms = 0
        self.is_fenced = False
        #: Whether this broker, while it is fenced, cannot know if its session is over.
        self.is_in_doubt = False
        self._on_turn: Callable[[], None] | None = None

    def watch(self, on_turn: Callable[[], None]) -> None:
        """Call `on_turn` whenever a read event begins after `late_from_ms`."""
        self._on_turn = on_turn

    def turned(self) -> None:
        """Report a turn of the loop, or a read event in it, that begins too late."""
        if self._on_turn is not None:
            self._on_turn()
