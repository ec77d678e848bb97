"""Connections from this broker to other brokers: for fetchers, ISR changes and commands.

A broker has one connection to each other broker for each purpose. A connection opens at its first
use; if it broke, it opens again at the next use. Responses on one connection come in the order of
the requests. A request fails with unknown outcome if its connection breaks or its timeout expires.
After a timeout the broker closes the connection, as Kafka's clients do, because later responses
would have to wait for the missing response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tidelog.broker.cluster_view import ClusterView
from tidelog.broker.server.timers import TimerWheel
from tidelog.core import limits
from tidelog.core.errors import ConnectionLost, ProtocolError, RequestTimeout
from tidelog.core.ports import Ports, Transport
from tidelog.core.tasks import Tasks
from tidelog.wire.peer import LATE, CorrelationIds, Peer
from tidelog.wire.registry import API, FETCH

#: A callback that gets (response, None) or (None, error).
OnAnswer = Callable[[Any, Exception | None], None]
CONNECT_TIMEOUT_MS = 10_000


def _ignore(broker_id: int) -> None:
    """Do nothing: the default callback of `Peers.lost` and `Peers.reached`."""


class PeerConnection:
    """A connection to one endpoint, and the `FrameHandler` of its transport."""

    def __init__(
        self,
        peers: Peers,
        host: str,
        port: int,
        purpose: str,
        correlation_ids: CorrelationIds | None = None,
        broker_id: int | None = None,
    ) -> None:
        self._peers = peers
        #: The broker at the other end, about which the connection reports to `Peers`; None to
        #: report nothing.
        self._broker_id = broker_id
        self._host = host
        self._port = port
        self._purpose = purpose
        self._peer = Peer(f"broker-{peers.broker_id}-{purpose}", correlation_ids)
        self._transport: Transport | None = None
        self._connecting = False
        self._closed = False
        #: Requests that were made before the connection was open.
        self._queued: list[tuple[int, int, Any, int, OnAnswer]] = []
        self._timer_armed = False
        #: Whether no response has come on this connection. A process that is ending still accepts
        #: connections, so only a response proves that the broker runs.
        self._is_unproven = False

    @property
    def address(self) -> str:
        """`host:port` of the peer."""
        return f"{self._host}:{self._port}"

    @property
    def is_open(self) -> bool:
        """Whether the connection is neither closed nor broken."""
        return not self._closed

    def send(
        self, api_key: int, version: int, message: Any, timeout_ms: int, on_answer: OnAnswer
    ) -> None:
        """Send a request; `on_answer` is called exactly once.

        Byte fields of the response are views that stay valid only while `on_answer` runs, unless
        the callee calls `keep_frames`.
        """
        if self._closed:
            on_answer(None, ConnectionLost(f"{self.address}: the connection is closed"))
            return
        if self._transport is None:
            self._queued.append((api_key, version, message, timeout_ms, on_answer))
            if not self._connecting:
                self._connecting = True
                self._peers.tasks.spawn(f"connect {self.address}", self._connect())
            return
        now_ms = self._peers.ports.clock.monotonic_ms()
        parts = self._peer.send(api_key, version, message, now_ms, timeout_ms, on_answer)
        self._transport.send(parts)
        self._arm_timer()

    async def call(self, api_key: int, version: int, message: Any, timeout_ms: int) -> Any:
        """Send a request and return its response.

        Raises ConnectionLost, ProtocolError, or RequestTimeout.

        After a RequestTimeout the outcome of the request is unknown.
        """
        future: asyncio.Future[Any] = self._peers.ports.loop.create_future()

        def answered(answer: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
                return
            if api_key == FETCH:
                self.keep_frames()
            future.set_result(answer)

        self.send(api_key, version, message, timeout_ms, answered)
        return await future

    def keep_frames(self) -> None:
        """Keep the response's views valid after the current `on_answer` call."""
        if self._transport is not None:
            self._transport.keep_frames()

    def close(self, reason: str = "closed") -> None:
        """Close the connection; all requests in flight fail."""
        if self._closed:
            return
        self._closed = True
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close(reason)
        self._fail_all(ConnectionLost(f"{self.address}: {reason}"))

    # methods of FrameHandler

    def frames_received(self, frames: list[memoryview]) -> None:
        """Deliver responses to the callbacks of their requests, in order."""
        if self._broker_id is not None:
            self._peers.heard_of(self._broker_id)
            if self._is_unproven:
                self._is_unproven = False
                self._peers.reached(self._broker_id)
        for frame in frames:
            if self._closed:
                return
            try:
                on_answer, answer = self._peer.received(frame)
            except ProtocolError as error:
                self.close(f"protocol error: {error}")
                return
            if on_answer is not LATE:
                on_answer(answer, None)

    def connection_lost(self, reason: str) -> None:
        """Close the connection, because the peer closed or lost it."""
        if not self._closed:
            self._owing_broker_lost()
        self._fell_silent()
        self._transport = None
        self.close(reason)

    def look(self) -> None:
        """Report the broker as lost if the kernel already knows that the connection ended."""
        if self._transport is not None and self._transport.has_ended():
            self._owing_broker_lost()

    def _owing_broker_lost(self) -> None:
        if self._broker_id is not None and self._peer.in_flight:
            self._peers.lost(self._broker_id)

    def _fell_silent(self) -> None:
        """Report to `Peers` if the connection was lost before all its requests had a response."""
        if self._broker_id is not None and self._peer.in_flight:
            self._peers.fell_silent(self._broker_id)

    def send_queue_changed(self, sent_bytes: int) -> None:
        """Do nothing: requests are few and small, and no request waits for the send queue."""

    async def _connect(self) -> None:
        try:
            transport = await self._peers.ports.network.connect(
                self._host,
                self._port,
                lambda transport: self,
                CONNECT_TIMEOUT_MS,
                limits.MAX_RESPONSE_BYTES,
            )
        except ConnectionLost as error:
            if not self._closed and self._broker_id is not None:
                self._peers.lost(self._broker_id)
            self.close(str(error))
            return
        finally:
            self._connecting = False
        self._is_unproven = True
        self._peers.addresses[self._host] = transport.peer.rpartition(":")[0]
        if self._closed:
            transport.close("not needed any more")
            return
        self._transport = transport
        queued, self._queued = self._queued, []
        for request in queued:
            self.send(*request)

    def _arm_timer(self) -> None:
        if self._timer_armed:
            return
        deadline_ms = self._peer.next_deadline_ms()
        if deadline_ms is not None:
            self._timer_armed = True
            delay_ms = deadline_ms - self._peers.ports.clock.monotonic_ms()
            self._peers.timers.after(delay_ms, self._deadline)

    def _deadline(self) -> None:
        self._timer_armed = False
        if self._closed:
            return
        expired = self._peer.expired(self._peers.ports.clock.monotonic_ms())
        for on_answer in expired:
            on_answer(None, RequestTimeout(f"{self.address}: no answer in time"))
        if expired:
            self._fell_silent()
            self.close("a request was not answered in time")
        else:
            self._arm_timer()

    def _fail_all(self, error: ConnectionLost) -> None:
        queued, self._queued = self._queued, []
        for on_answer in self._peer.close():
            on_answer(None, error)
        for _, _, _, _, on_answer in queued:
            on_answer(None, error)


class Peers:
    """All outgoing connections of one broker."""

    def __init__(
        self,
        broker_id: int,
        ports: Ports,
        tasks: Tasks,
        timers: TimerWheel,
        view: ClusterView,
        listener_name: str,
    ) -> None:
        """`listener_name` is the listener on which brokers connect to each other."""
        self.broker_id = broker_id
        self.ports = ports
        self.tasks = tasks
        self.timers = timers
        self._view = view
        self._listener_name = listener_name
        self._connections: dict[tuple[int, str], PeerConnection] = {}
        #: The IP address to which this broker last connected, by host name.
        self.addresses: dict[str, str] = {}
        self._opened: dict[PeerConnection, None] = {}
        #: Called when a broker closes a connection with an unanswered request, or refuses a new
        #: connection.
        self.lost: Callable[[int], None] = _ignore
        #: Called at the first response on a new connection.
        self.reached: Callable[[int], None] = _ignore
        #: Live brokers that have not responded since a connection with an unanswered request to
        #: them was lost, each with the monotonic time of that loss.
        self._silent_ms: dict[int, int] = {}

    def is_host_of(self, broker_id: int, host: str) -> bool:
        """Return whether a broker has an endpoint on `host`; -1 means any live broker.

        `host` is a name or an address; this broker knows the address behind a name after it
        connected to that name.
        """
        brokers = self._view.brokers
        named = [brokers[broker_id]] if broker_id in brokers else []
        return any(
            host in (endpoint.host, self.addresses.get(endpoint.host))
            for broker in (brokers.values() if broker_id == -1 else named)
            for endpoint in broker.endpoints
        )

    def fell_silent(self, broker_id: int) -> None:
        """Note that a connection with an unanswered request to this broker was lost."""
        if self._view.is_alive(broker_id):
            self._silent_ms.setdefault(broker_id, self.ports.clock.monotonic_ms())

    def heard_of(self, broker_id: int) -> None:
        """Note that a broker has responded, so it has not fallen silent."""
        if self._silent_ms:
            self._silent_ms.pop(broker_id, None)

    def silent_since_ms(self, broker_id: int) -> int | None:
        """Return when a connection with an unanswered request to a live broker was lost.

        The result is the monotonic time in ms of the first such loss since the broker's last
        response; None if there was no such loss.
        """
        return self._silent_ms.get(broker_id)

    def look(self) -> None:
        """Report the brokers of ended connections before the event loop notices their ends."""
        for connection in self._connections.values():
            connection.look()

    def view_changed(self) -> None:
        """Forget the lost connections to brokers that are no longer registered."""
        for broker_id in [
            broker_id for broker_id in self._silent_ms if not self._view.is_alive(broker_id)
        ]:
            del self._silent_ms[broker_id]

    def connection(self, broker_id: int, purpose: str) -> PeerConnection:
        """Return the connection to a broker; raise ConnectionLost if its address is unknown."""
        endpoint = self._view.endpoint(broker_id, self._listener_name)
        if endpoint is None:
            raise ConnectionLost(f"broker {broker_id} is not alive as far as this broker knows")
        key = (broker_id, purpose)
        existing = self._connections.get(key)
        if existing is not None:
            if existing.is_open and existing.address == f"{endpoint.host}:{endpoint.port}":
                return existing
            existing.close("the broker has another address now")
        made = PeerConnection(self, endpoint.host, endpoint.port, purpose, broker_id=broker_id)
        self._connections[key] = made
        return made

    def open(
        self, host: str, port: int, purpose: str, correlation_ids: CorrelationIds
    ) -> PeerConnection:
        """Open a connection that the caller alone uses; it is closed when the broker stops.

        The correlation ids of the connection continue the ids that `correlation_ids` gave out
        before.
        """
        for connection in [connection for connection in self._opened if not connection.is_open]:
            del self._opened[connection]
        made = PeerConnection(self, host, port, purpose, correlation_ids)
        self._opened[made] = None
        return made

    def close(self) -> None:
        """Close every connection."""
        for connection in [*self._connections.values(), *self._opened]:
            connection.close("the broker is stopping")
        self._connections.clear()
        self._opened.clear()


def api_name(api_key: int) -> str:
    """Return the name of an API, for messages."""
    return API[api_key].name if api_key in API else f"API key {api_key}"
