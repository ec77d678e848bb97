"""The closing of idle connections (`connections.max.idle.ms`), from clients and brokers alike.

One timer serves all connections and ticks sixteen times in that period. A connection notes the tick
of its last request or response, and every tick closes the connections whose own is too old. So a
connection costs its traffic two loads and a store, and closes at most a sixteenth late. The timer
also ticks where idle connections stay: `max.connections` asks for the longest idle one. Time in
which this broker itself did not run does not count. As in Kafka, a connection with a waiting
request is closed too: only bytes show that the other side is still there. Source:
Selector.IdleExpiryManager.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.server.timers import TimerWheel

#: Ticks that a connection may be silent for.
TICKS = 16
#: Time between two ticks where idle connections are not closed.
_UNLIMITED_TICK_MS = 30_000


class IdleConnections:
    """The watch over the accepted connections of one broker."""

    def __init__(
        self, timers: TimerWheel, max_idle_ms: int, close_older: Callable[[int, str], None]
    ) -> None:
        """`max_idle_ms` below 0: never close.

        `close_older` closes, for a reason, the connections whose last traffic was before a tick.
        """
        self._timers = timers
        self._max_idle_ms = max_idle_ms
        self._close_older = close_older
        #: The present tick, which a connection notes with its traffic.
        self.tick = 0

    def start(self) -> None:
        """Watch from now on, as long as the timers run."""
        is_limited = self._max_idle_ms >= 0
        tick_ms = -(-self._max_idle_ms // TICKS) if is_limited else _UNLIMITED_TICK_MS
        self._timers.after(tick_ms, self._tick)

    def _tick(self) -> None:
        self.tick += 1
        if self._max_idle_ms >= 0:
            reason = f"idle for connections.max.idle.ms={self._max_idle_ms}"
            self._close_older(self.tick - TICKS, reason)
        self.start()
