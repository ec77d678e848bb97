"""The limit of connections (`max.connections`), which never keeps a broker out.

As in Kafka, a listener between brokers that clients do not use always accepts: at the limit the
longest idle connection of a client is closed for it. Where clients and brokers share one listener,
a connection at the limit is on trial. If its first request is one that only brokers send, it counts
as a broker's, and a client's connection makes room. Otherwise, or without a request for `TRIAL_MS`,
it is closed. ApiVersions decides nothing. Trials are few: the oldest one ends for a new one.

Connections of brokers count, too. Where no client's connection is left, that of the longest idle
broker makes room, so that the number has a bound whatever peers claim to be. The log has one line
when the limit is reached. Source: SocketServer.ConnectionQuotas, Processor.closeExcessConnections.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.broker.server.connections import Connection
from tidelog.broker.server.timers import Timeout, TimerWheel
from tidelog.core.errors import ProtocolError
from tidelog.core.ports import FrameHandler, Tracer
from tidelog.wire.codec import decode_request
from tidelog.wire.registry import API_VERSIONS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH

#: APIs of clients and of followers, which name themselves. A follower may begin with any of them.
_OF_REPLICAS: Final = (FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
#: How long a connection on trial may stay without a request that decides: brokers send theirs at
#: once.
TRIAL_MS: Final = 5_000
#: Connections on trial at the same time: a descriptor and a small buffer each.
MAX_TRIALS: Final = 64
#: The limit is reached again, for the log, when this part of the connections has been free.
_FREE_PART: Final = 10
#: Hosts that a log line names.
_NAMED: Final = 3


class ConnectionLimit:
    """The limit over all listeners of one broker."""

    def __init__(
        self,
        connections: Mapping[Connection, None],
        max_connections: Callable[[], int],
        timers: TimerWheel,
        tracer: Tracer,
        *,
        broker_listener: str,
        has_client_listener: bool,
        is_inter_broker: Callable[[int], bool],
    ) -> None:
        """`connections`: the open ones, in the order in which they were accepted.

        `has_client_listener`: whether there is another listener beside that of brokers.
        """
        self._connections = connections
        self._max_connections = max_connections
        self._timers = timers
        self._tracer = tracer
        self._broker_listener = broker_listener
        self._has_client_listener = has_client_listener
        self._is_inter_broker = is_inter_broker
        self._trials: dict[Trial, None] = {}
        self._was_reached = False

    def accepted(self, connection: Connection) -> FrameHandler:
        """Return the handler of a new connection, which is among the open ones already."""
        limit = self._max_connections()
        if self._open() <= limit:
            if self._was_reached and self._open() <= limit - limit // _FREE_PART:
                self._was_reached = False
            return connection
        self._report(limit)
        if connection.listener != self._broker_listener:
            connection.close(f"max.connections={limit} reached")
            return connection
        if self._has_client_listener:
            self.make_room(connection)
            return connection
        if len(self._trials) >= MAX_TRIALS:
            next(iter(self._trials)).end()
        trial = Trial(self, connection, self._timers)
        self._trials[trial] = None
        return trial

    def _open(self) -> int:
        return len(self._connections) - len(self._trials)

    def is_of_broker(self, frame: memoryview) -> bool | None:
        """Return whether a request is one that only brokers send; None where it decides nothing."""
        key = int.from_bytes(frame[:2], "big", signed=True)
        if key == API_VERSIONS:
            return None
        if key not in _OF_REPLICAS:
            return self._is_inter_broker(key)
        try:
            _, message = decode_request(frame)
        except ProtocolError:
            return False
        of_state = key == FETCH and message.replica_state.replica_id >= 0
        return bool(message.replica_id >= 0 or of_state)

    def decided(self, trial: Trial) -> None:
        """Forget a trial that is over."""
        self._trials.pop(trial, None)

    @property
    def is_reached(self) -> bool:
        """Whether there is no room for a further client."""
        return self._open() >= self._max_connections()

    def make_room(self, newcomer: Connection) -> None:
        """Close the longest idle connection of a client for that of a broker."""
        limit = self._max_connections()
        if self._open() <= limit:
            return
        on_trial = {trial.connection for trial in self._trials}
        idle = [each for each in self._connections if each is not newcomer and each not in on_trial]
        clients = [each for each in idle if not self._is_broker(each)]
        victim = min(clients or idle, key=lambda each: each.active_tick, default=None)
        if victim is not None:
            self._tracer.mark("connection_closed_for_broker")
            victim.close(f"max.connections={limit} reached: {newcomer.peer} is a broker")

    def _is_broker(self, connection: Connection) -> bool:
        is_of_listener = connection.listener == self._broker_listener and self._has_client_listener
        return connection.is_broker or is_of_listener

    def _report(self, limit: int) -> None:
        """Log once that the limit is reached, and which hosts hold most connections."""
        if self._was_reached:
            return
        self._was_reached = True
        hosts = Counter(each.peer.rpartition(":")[0] for each in self._connections)
        named = ", ".join(f"{host} {count:,}" for host, count in hosts.most_common(_NAMED))
        brokers = sum(map(self._is_broker, self._connections))
        self._tracer.log(
            "server",
            logging.WARNING,
            f"max.connections={limit} is reached: further clients are refused, brokers are not;"
            f" {brokers} connections are those of brokers; most connections by host: {named}",
        )


class Trial:
    """The FrameHandler of a connection above the limit, until its first request decides."""

    def __init__(self, limit: ConnectionLimit, connection: Connection, timers: TimerWheel) -> None:
        self._limit = limit
        self.connection = connection
        self._is_decided = False
        self._timeout: Timeout = timers.after(TRIAL_MS, self.end)

    def frames_received(self, frames: list[memoryview]) -> None:
        """Let requests pass up to the one that decides, and all of a broker."""
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
                    self.connection.prove_broker()
                    self._limit.make_room(self.connection)
                break
        self.connection.frames_received(frames)

    def connection_lost(self, reason: str) -> None:
        """Pass on the end of the connection."""
        self._decide()
        self.connection.connection_lost(reason)

    def send_queue_changed(self, sent_bytes: int) -> None:
        """Pass on what the kernel took."""
        self.connection.send_queue_changed(sent_bytes)

    def end(self) -> None:
        """Close the connection: it has not proved to be a broker's."""
        if not self._is_decided:
            self._decide()
            self.connection.close("max.connections reached, and no request of a broker came")

    def _decide(self) -> None:
        self._is_decided = True
        self._timeout.cancel()
        self._limit.decided(self)
