"""Overdue commands: when the controller reports a broker that does not acknowledge commands (V81).

The delay of a broker counts from the moment when a command enters its empty queue. If the broker
acknowledges some commands while others wait, the delay counts again from that acknowledgement. A
broker that is behind for longer than the limit is overdue. The controller reports the delay once,
and once more when the broker has caught up. Time is an argument; `tidelog.broker.controller`
reports and counts the delays.
"""

from __future__ import annotations


class Overdue:
    """Delay of one broker's command queue; times in ms of a monotonic clock."""

    __slots__ = ("_since_ms", "is_overdue", "limit_ms")

    def __init__(self, limit_ms: int) -> None:
        self.limit_ms = limit_ms
        self.is_overdue = False
        self._since_ms: int | None = None

    def queued(self, now_ms: int) -> None:
        """Record that a command is queued for the broker."""
        if self._since_ms is None:
            self._since_ms = now_ms

    def behind_ms(self, now_ms: int) -> int:
        """Return the delay in ms; 0 if the broker has acknowledged all commands."""
        return 0 if self._since_ms is None else now_ms - self._since_ms

    def failed(self, now_ms: int) -> int | None:
        """Record that the broker's commands must be sent again.

        Returns the delay in ms if it must be reported now, else None.
        """
        if self._since_ms is None or self.is_overdue or now_ms - self._since_ms < self.limit_ms:
            return None
        self.is_overdue = True
        return now_ms - self._since_ms

    def answered(self, now_ms: int, *, more: bool) -> int | None:
        """Record that the broker acknowledged commands; `more` means that further commands wait.

        Returns the delay in ms if the broker was overdue, else None.
        """
        since_ms, self._since_ms = self._since_ms, now_ms if more else None
        if not self.is_overdue or since_ms is None:
            return None
        self.is_overdue = False
        return now_ms - since_ms
