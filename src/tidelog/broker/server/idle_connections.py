"""Closes connections that nobody uses (`connections.max.idle.ms`), whoever made them.

One timer for all: it makes a tick sixteen times in that while, a connection notes the tick of its
last request or answer, and every tick closes those whose own is too old. So a connection costs its
traffic two loads and a store, it is closed at most a sixteenth late, and time in which this broker
did not run itself does not count. As in Kafka, a connection with a request that waits is closed
too: only bytes show that the other side is still there. Source: Selector.IdleExpiryManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidelog.broker.server.timers import TimerWheel

#: Ticks that a connection may be silent for.
TICKS = 16


class ActiveConnection(Protocol):
    """A connection that notes when something last went over it."""

    @property
    def active_tick(self) -> int:
        """`IdleConnections.tick` of that moment."""

    def close(self, reason: str) -> None:
        """Close the connection from our side."""


class IdleConnections:
    """Watches the accepted connections of one broker."""

    def __init__(
        self, timers: TimerWheel, max_idle_ms: int, connections: Iterable[ActiveConnection]
    ) -> None:
        """`connections` is looked at anew with every tick; `max_idle_ms` below 0: never close."""
        self._timers = timers
        self._max_idle_ms = max_idle_ms
        self._connections = connections
        #: What a connection notes when something goes over it.
        self.tick = 0

    def start(self) -> None:
        """Watch from now on, as long as the timers run."""
        if self._max_idle_ms >= 0:
            self._timers.after(-(-self._max_idle_ms // TICKS), self._tick)

    def _tick(self) -> None:
        self.tick += 1
        oldest = self.tick - TICKS
        for connection in list(self._connections):
            if connection.active_tick < oldest:
                connection.close(f"idle for connections.max.idle.ms={self._max_idle_ms}")
        self.start()
