"""The closing of idle connections (`connections.max.idle.ms`) of clients and brokers.

One timer serves all connections and ticks sixteen times within `connections.max.idle.ms`. A
connection notes the number of the current tick at each request and response. Every tick closes the
connections whose last noted tick is too old. Noting a tick is cheap, and an idle connection closes
at most a sixteenth of the limit late. The timer also ticks if idle connections are not closed,
because at `max.connections` the broker closes the longest idle connection. A pause of this broker's
process does not count as idle time of its connections. As in Kafka (Selector.IdleExpiryManager), a
connection with a waiting request also counts as idle, because only received bytes show that the
peer still exists.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.server.timers import TimerWheel

#: Number of ticks for which a connection may be silent.
TICKS = 16
#: Time between two ticks in milliseconds if idle connections are not closed.
_UNLIMITED_TICK_MS = 30_000


class IdleConnections:
    """The timer that closes the idle connections of one broker."""

    def __init__(
        self, timers: TimerWheel, max_idle_ms: int, close_older: Callable[[int, str], None]
    ) -> None:
        """With `max_idle_ms` below 0 no connection is closed.

        `close_older` closes the connections whose last traffic was before a tick, with a reason for
        the log.
        """
        self._timers = timers
        self._max_idle_ms = max_idle_ms
        self._close_older = close_older
        #: Number of the current tick; a connection notes it at each request and response.
        self.tick = 0

    def start(self) -> None:
        """Start the ticks, which continue until the broker's timers are closed."""
        is_limited = self._max_idle_ms >= 0
        tick_ms = -(-self._max_idle_ms // TICKS) if is_limited else _UNLIMITED_TICK_MS
        self._timers.after(tick_ms, self._tick)

    def _tick(self) -> None:
        self.tick += 1
        if self._max_idle_ms >= 0:
            reason = f"idle for connections.max.idle.ms={self._max_idle_ms}"
            self._close_older(self.tick - TICKS, reason)
        self.start()
