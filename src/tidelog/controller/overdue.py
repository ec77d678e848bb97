"""Overdue commands: when the controller reports a broker that does not acknowledge them (V81).

A broker is behind from the moment that a command is queued for it while none was waiting. It is
behind again from each acknowledgement that leaves other commands waiting. A broker that is behind
for longer than the limit is overdue. This is reported once, and once more when it has caught up.
Time is an argument; the shell reports and counts.
"""

from __future__ import annotations


class Overdue:
    """Delay of one broker's command queue; times in ms of a clock that never goes back."""

    __slots__ = ("_since_ms", "is_overdue", "limit_ms")

    def __init__(self, limit_ms: int) -> None:
        self.limit_ms = limit_ms
        self.is_overdue = False
        self._since_ms: int | None = None

    def queued(self, now_ms: int) -> None:
        """Note that a command is queued."""
        if self._since_ms is None:
            self._since_ms = now_ms

    def behind_ms(self, now_ms: int) -> int:
        """Return for how many ms the broker has left commands unacknowledged; 0 without any."""
        return 0 if self._since_ms is None else now_ms - self._since_ms

    def failed(self, now_ms: int) -> int | None:
        """Note that the commands must be sent again.

        Returns for how many ms the broker is behind, if that is to be reported now.
        """
        if self._since_ms is None or self.is_overdue or now_ms - self._since_ms < self.limit_ms:
            return None
        self.is_overdue = True
        return now_ms - self._since_ms

    def answered(self, now_ms: int, *, more: bool) -> int | None:
        """Note that the broker acknowledged its commands, and has `more` waiting.

        Returns after how many ms, if it was overdue.
        """
        since_ms, self._since_ms = self._since_ms, now_ms if more else None
        if not self.is_overdue or since_ms is None:
            return None
        self.is_overdue = False
        return now_ms - since_ms
