"""The fence of this broker: the state that decides whether the broker may serve (V47).

`membership.self_fencing` decides when the broker is fenced; connections and timeouts read the state
from this module.
"""

from __future__ import annotations

from collections.abc import Callable


class Fence:
    """The fence of one broker; a gap between two turns of the event loop fences the broker."""

    def __init__(self) -> None:
        #: The event loop's next turn is late if it begins after this monotonic time; 0 before the
        #: watch begins.
        self.late_from_ms = 0
        self.is_fenced = False
        #: Whether the broker is fenced and does not know whether its session has expired.
        self.is_in_doubt = False
        self._on_turn: Callable[[], None] | None = None

    def watch(self, on_turn: Callable[[], None]) -> None:
        """Call `on_turn` whenever a read event begins after `late_from_ms`."""
        self._on_turn = on_turn

    def turned(self) -> None:
        """Report a turn of the event loop, or a read event within a turn, that begins after
        `late_from_ms`.
        """
        if self._on_turn is not None:
            self._on_turn()
