"""The listeners of one broker and the connections that they accept.

The server accepts connections from the broker's start on, so that clients need not reconnect.
Requests begin when the broker is registered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tidelog.broker.server.admission import Admission
from tidelog.broker.server.broker_claims import Members
from tidelog.broker.server.connection_limit import ConnectionLimit
from tidelog.broker.server.connections import Connection, ConnectionParts
from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.fence import Fence
from tidelog.broker.server.idle_connections import IdleConnections
from tidelog.broker.server.metrics import CONNECTION_RATE, CONNECTIONS, CONNECTIONS_ACCEPTED
from tidelog.broker.server.request_meters import RequestMeters
from tidelog.broker.server.timers import TimerWheel
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError
from tidelog.core.metrics import MetricReading, Metrics
from tidelog.core.ports import FrameHandler, Listener, Ports, Transport
from tidelog.core.receive_budget import ReceiveBudget, budget_bytes
from tidelog.core.recent_buckets import Rate
from tidelog.core.response_budget import ResponseBudget
from tidelog.core.types import Endpoint


class Server:
    """The listeners of one broker; requests begin when the broker is registered (V30)."""

    def __init__(
        self,
        config: BrokerConfig,
        max_connections: Callable[[], int],
        ports: Ports,
        timers: TimerWheel,
        fence: Fence,
        admission: Admission,
        dispatcher: Dispatcher,
        submit_appends: Callable[[], bool],
        responses: ResponseBudget,
        members: Members,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._ports = ports
        self._admission = admission
        self._connections: dict[Connection, None] = {}
        self.idle = IdleConnections(
            timers, config.connections_max_idle_ms, partial(close_older, self._connections)
        )
        admission.begin_all = self._begin_all
        self._parts = ConnectionParts(
            dispatcher,
            admission,
            fence,
            self.idle,
            responses,
            RequestMeters(metrics, ports.clock),
            ports.clock,
            ports.tracer,
            submit_appends,
            self._connection_closed,
        )
        self._limit = ConnectionLimit(
            self._connections,
            max_connections,
            timers,
            ports.tracer,
            broker_listener=config.inter_broker_listener_name,
            has_client_listener=len(config.listeners) > 1,
            members=members,
        )
        self._metrics = metrics
        #: By listener: the numbers of accepted connections at the last scrapes, from which the rate
        #: of new connections is computed.
        self._rates: dict[str, Rate] = {}
        metrics.collect(self._readings)
        self._listeners: list[Listener] = []
        self._ports_listened: dict[str, int] = {}
        self._receive_budget = self._make_receive_budget()

    def _make_receive_budget(self) -> ReceiveBudget | None:
        max_bytes = budget_bytes(self._config)
        if max_bytes is None:
            return None
        return ReceiveBudget(
            max_bytes,
            self._config.socket_request_max_bytes,
            self._ports.clock,
            partial(self._ports.tracer.log, "request", logging.WARNING),
        )

    async def listen(self) -> None:
        """Listen on every configured address; raise ConfigError if an address is not available."""
        for endpoint in self._config.listeners:
            listener = await self._listen(endpoint)
            self._listeners.append(listener)
            self._ports_listened[endpoint.listener] = listener.port

    async def _listen(self, endpoint: Endpoint) -> Listener:
        try:
            return await self._ports.network.listen(
                endpoint.host,
                endpoint.port,
                partial(self.accept, endpoint.listener),
                self._config.socket_request_max_bytes,
                self._receive_budget,
            )
        except OSError as error:
            raise ConfigError(
                f"listeners={endpoint.listener}://{endpoint.host}:{endpoint.port}:"
                f" {error.strerror or error}; an address of this machine with a port that no"
                " process listens on expected"
            ) from error

    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """Return the broker's endpoints; port 0 of a listener is replaced by its actual port."""
        return tuple(
            endpoint._replace(port=endpoint.port or self._ports_listened[endpoint.listener])
            for endpoint in self._config.advertised_listeners
        )

    def begin(self) -> None:
        """Begin requests from now on, as the broker is registered."""
        self._admission.is_serving = True
        self._begin_all()
        self.idle.start()

    def _begin_all(self) -> None:
        for connection in self.connections():
            connection.begin()

    def accept(self, listener: str, transport: Transport) -> FrameHandler:
        """Return the handler of a connection that the named listener accepted."""
        serves_own = listener == self._config.inter_broker_listener_name
        connection = Connection(self._parts, transport, serves_own, listener)
        self._connections[connection] = None
        self._metrics.add(CONNECTIONS_ACCEPTED, 1, listener)
        return self._limit.accepted(connection)

    def _connection_closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._admission.gone(connection.close)

    def _readings(self) -> Iterator[MetricReading]:
        """Return the metrics of the number of connections, and of the rate of new connections."""
        now_ms = self._ports.clock.monotonic_ms()
        for name in (endpoint.listener for endpoint in self._config.listeners):
            count = sum(each.listener == name for each in self._connections)
            rate = self._rates.setdefault(name, Rate(now_ms))
            accepted = self._metrics.value(CONNECTIONS_ACCEPTED, name)
            values = (count, rate.thousandths(accepted, now_ms))
            yield MetricReading((CONNECTIONS, CONNECTION_RATE), values, (name,))

    def connections(self) -> list[Connection]:
        """Return the open connections."""
        return list(self._connections)

    def session_over(self) -> None:
        """Close connections with responses made while the session may have expired (V47)."""
        for connection in self.connections():
            connection.session_over()

    def close_listeners(self) -> None:
        """Close the listeners, which then accept no more connections."""
        for listener in self._listeners:
            listener.close()

    def close_connections(self) -> None:
        """Close every connection, as the broker stops."""
        for connection in self.connections():
            connection.close("the broker is stopping")


def close_older(connections: Iterable[Connection], oldest_tick: int, reason: str) -> None:
    """Close the connections whose last request or response was before the tick `oldest_tick`.

    `idle_connections` counts the ticks of its timer.
    """
    for connection in list(connections):
        if connection.active_tick < oldest_tick:
            connection.close(reason)
