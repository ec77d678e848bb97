"""The limit of connections (`max.connections`), which never refuses a broker's connection.

As in Kafka, an inter-broker listener that clients do not use accepts every connection. At the
limit, a new connection replaces the longest idle connection of a client. If clients and brokers
share one listener, a new connection at the limit is on trial until its first request other than
ApiVersions. If a broker sent that request (`broker_claims`), a client's connection is closed
instead. If a client sent it, or no request comes within `TRIAL_MS`, the connection on trial is
closed. If more than `MAX_TRIALS` connections are on trial, the broker closes the oldest connection
of the host with most trials; hosts of brokers come last.

Connections of brokers count toward the limit, too. If no client's connection is left, the broker
closes the connection with the weakest claim to be from a broker. At most `MAX_CLAIMED` connections
may name a broker but come from another host; beyond that number the broker closes one of these
connections. The broker logs one line when the number of connections reaches the limit. In Kafka,
SocketServer.ConnectionQuotas enforces the limit.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.broker.server.broker_claims import (
    Members,
    Standing,
    host_of,
    of_frame,
    standing,
)
from tidelog.broker.server.connections import Connection
from tidelog.broker.server.timers import Timeout, TimerWheel
from tidelog.core.ports import FrameHandler, Tracer
from tidelog.wire.registry import API_VERSIONS

#: Maximum duration of a trial in milliseconds; a broker's first request, which ends its trial,
#: comes without delay.
TRIAL_MS: Final = 5_000
#: Maximum number of connections on trial; each costs a descriptor and a small buffer. One turn of
#: the event loop accepts at most this many connections (the listener's backlog). A burst of clients
#: thus cannot end a broker's trial before the broker's first request.
MAX_TRIALS: Final = 1_024
#: Maximum number of connections that name a broker but come from another host, enough for many
#: brokers behind a shared address.
MAX_CLAIMED: Final = 256
#: After the broker logged that the limit is reached, it logs that again only if a tenth of the
#: connections was free in between.
_FREE_PART: Final = 10
#: Maximum number of hosts that a log line names.
_NAMED: Final = 3


class ConnectionLimit:
    """The limit of open connections (`max.connections`) over all listeners of one broker."""

    def __init__(
        self,
        connections: Mapping[Connection, None],
        max_connections: Callable[[], int],
        timers: TimerWheel,
        tracer: Tracer,
        *,
        broker_listener: str,
        has_client_listener: bool,
        members: Members,
    ) -> None:
        """`connections` are the open connections, in the order in which they were accepted.

        `has_client_listener` is true if there is a listener besides the inter-broker listener.
        """
        self._connections = connections
        self._max_connections = max_connections
        self._timers = timers
        self._tracer = tracer
        self._broker_listener = broker_listener
        self._has_client_listener = has_client_listener
        self._members = members
        self._trials: dict[Trial, None] = {}
        #: The connections on trial, by host.
        self._trials_of: dict[str, dict[Trial, None]] = {}
        #: Connections that the limit has closed and that are still listed as open.
        self._closing: dict[Connection, None] = {}
        #: The open connections that name a broker but come from another host.
        self._claimed: dict[Connection, None] = {}
        self._was_reached = False

    def accepted(self, connection: Connection) -> FrameHandler:
        """Return the handler of a new connection, which already counts as open."""
        limit = self._max_connections()
        if self._open() <= limit:
            if self._was_reached and self._open() <= limit - limit // _FREE_PART:
                self._was_reached = False
            return connection
        self._report(limit)
        if connection.listener != self._broker_listener:
            self.close(connection, f"max.connections={limit} reached")
            return connection
        if self._has_client_listener:
            self.make_room(connection)
            return connection
        if len(self._trials) >= MAX_TRIALS:
            self._end_a_trial()
        trial = Trial(self, connection, self._timers)
        self._trials[trial] = None
        self._trials_of.setdefault(host_of(connection.peer), {})[trial] = None
        return trial

    def _open(self) -> int:
        closing = [each for each in self._closing if each in self._connections]
        self._closing = dict.fromkeys(closing)
        return len(self._connections) - len(self._trials) - len(closing)

    def _end_a_trial(self) -> None:
        """Close the oldest trial connection of the host with most trials; hosts of brokers last."""
        is_host_of = self._members.is_host_of
        host = max(
            self._trials_of, key=lambda each: (not is_host_of(-1, each), len(self._trials_of[each]))
        )
        next(iter(self._trials_of[host])).end()

    def is_of_broker(self, frame: memoryview) -> bool | None:
        """Return whether a broker sent a request; None if the request does not decide that."""
        if int.from_bytes(frame[:2], "big", signed=True) == API_VERSIONS:
            return None
        return of_frame(frame, self._members) is not None

    def proved(self, trial: Trial, frame: memoryview) -> None:
        """Accept a connection as a broker's, because its first request comes from a broker."""
        connection, named = trial.connection, of_frame(frame, self._members)
        assert named is not None, "the request is one of a broker"
        connection.prove_broker(named)
        self.make_room(connection)

    def decided(self, trial: Trial) -> None:
        """Forget a connection's trial, because the trial has ended."""
        if self._trials.pop(trial, trial) is None:
            host = host_of(trial.connection.peer)
            del self._trials_of[host][trial]
            if not self._trials_of[host]:
                del self._trials_of[host]

    def close(self, connection: Connection, reason: str) -> None:
        """Close a connection, and no longer count it toward the limit."""
        self._closing[connection] = None
        connection.close(reason)

    @property
    def is_reached(self) -> bool:
        """Whether the limit leaves no room for another client."""
        return self._open() >= self._max_connections()

    def make_room(self, newcomer: Connection) -> None:
        """Close the longest idle connection of a client, to make room for a broker's connection.

        If no client is connected, close the connection with the weakest claim to be from a broker;
        among equal claims, the longest idle connection.
        """
        limit = self._max_connections()
        if self._open() <= limit:
            return
        victim = self._victim(newcomer)
        if victim is not None:
            self._tracer.mark("connection_closed_for_broker")
            self.close(victim, f"max.connections={limit} reached: {newcomer.peer} is a broker")

    def _victim(self, newcomer: Connection) -> Connection | None:
        left_out = {trial.connection for trial in self._trials}
        left_out.update((newcomer, *self._closing))
        idle = sorted(
            (each for each in self._connections if each not in left_out),
            key=lambda each: each.active_tick,
        )
        if self._standing(newcomer) is Standing.CLAIMED:
            claimed = [each for each in self._claimed if each in self._connections]
            self._claimed = dict.fromkeys((*claimed, newcomer))
            if len(claimed) >= MAX_CLAIMED:
                idle = [each for each in idle if each in self._claimed]
        client = next((each for each in idle if not self._is_broker(each)), None)
        return client if client is not None else min(idle, key=self._standing, default=None)

    def _is_broker(self, connection: Connection) -> bool:
        return self._standing(connection) is not Standing.CLIENT

    def _standing(self, connection: Connection) -> Standing:
        if connection.listener == self._broker_listener and self._has_client_listener:
            return Standing.BROKER
        claimed = connection.broker_id if connection.is_broker else None
        return standing(connection.peer, claimed, connection.client_id, self._members)

    def _report(self, limit: int) -> None:
        """Log once that the limit is reached, and which hosts have most connections."""
        if self._was_reached:
            return
        self._was_reached = True
        hosts = Counter(host_of(each.peer) for each in self._connections)
        named = ", ".join(f"{host} {count:,}" for host, count in hosts.most_common(_NAMED))
        brokers = sum(map(self._is_broker, self._connections))
        self._tracer.log(
            "server",
            logging.WARNING,
            f"max.connections={limit} is reached: further clients are refused, brokers are not;"
            f" {brokers} connections are those of brokers; most connections by host: {named}",
        )


class Trial:
    """The `FrameHandler` of a connection on trial, until its first request shows its sender."""

    def __init__(self, limit: ConnectionLimit, connection: Connection, timers: TimerWheel) -> None:
        self._limit = limit
        self.connection = connection
        self._is_decided = False
        self._timeout: Timeout = timers.after(TRIAL_MS, self.end)

    def frames_received(self, frames: list[memoryview]) -> None:
        """Pass on requests; a request that shows whether a broker sent it ends the trial."""
        if not self._is_decided:
            for frame in frames:
                is_of_broker = self._limit.is_of_broker(frame)
                if is_of_broker is None:
                    continue
                if not is_of_broker and self._limit.is_reached:
                    self.end()
                    return
                self._decide()
                if is_of_broker:
                    self._limit.proved(self, frame)
                break
        self.connection.frames_received(frames)

    def connection_lost(self, reason: str) -> None:
        """Report to the connection's own handler that the connection has ended."""
        self._decide()
        self.connection.connection_lost(reason)

    def send_queue_changed(self, sent_bytes: int) -> None:
        """Report to the connection's own handler how many bytes the kernel has sent."""
        self.connection.send_queue_changed(sent_bytes)

    def end(self) -> None:
        """Close the connection, because no request showed that a broker sent it."""
        if not self._is_decided:
            self._decide()
            reason = "max.connections reached, and no request of a broker came"
            self._limit.close(self.connection, reason)

    def _decide(self) -> None:
        self._is_decided = True
        self._timeout.cancel()
        self._limit.decided(self)
