"""When the controller says that a broker does not answer its commands (V81).

A broker is behind from the moment that a command is queued for it while it had none, and again
from each that it answered with others waiting. Behind for longer than the limit it is overdue:
said once, and once more when it has caught up. Time is an argument; what is said and counted is
the shell's.
"""

from __future__ import annotations


class Overdue:
    """Of one broker's queue; times in ms of a clock that never goes back."""

    __slots__ = ("_since_ms", "is_overdue", "limit_ms")

    def __init__(self, limit_ms: int) -> None:
        self.limit_ms = limit_ms
        self.is_overdue = False
        self._since_ms: int | None = None

    def queued(self, now_ms: int) -> None:
        """Something has to be told."""
        if self._since_ms is None:
            self._since_ms = now_ms

    def failed(self, now_ms: int) -> int | None:
        """What was sent has to be repeated: for how many ms the broker is behind, if that is to be
        said now."""
        if self._since_ms is None or self.is_overdue or now_ms - self._since_ms < self.limit_ms:
            return None
        self.is_overdue = True
        return now_ms - self._since_ms

    def answered(self, now_ms: int, *, more: bool) -> int | None:
        """It took what was sent, and has `more` waiting: after how many ms, if it was overdue."""
        since_ms, self._since_ms = self._since_ms, now_ms if more else None
        if not self.is_overdue or since_ms is None:
            return None
        self.is_overdue = False
        return now_ms - since_ms
