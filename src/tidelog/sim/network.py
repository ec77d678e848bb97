"""The simulated network: hosts, the links between them, listeners, and attempts to connect.

A link is one direction between two hosts. Each link can be cut, slowed down and healed
independently. `sim_connections` implements the connections. A host without power does not respond.
A host with power refuses a connection to a port without a listener.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import zlib
from collections.abc import Awaitable, Callable, Sequence

from tidelog.core.errors import ConnectionLost
from tidelog.core.ports import FrameHandler, Listener, Transport
from tidelog.core.receive_budget import ReceiveBudget
from tidelog.sim.loop import NS_PER_MS, Scheduler
from tidelog.sim.process import Process
from tidelog.sim.sim_connections import (
    OPEN,
    RESET,
    ConnectionEnd,
    ConnectionWatch,
    FrameWatch,
    Link,
    Pipe,
)
from tidelog.sim.sim_transport import SimTransport

#: Constant part of a healthy link's delay in ns; `MEAN_EXTRA_DELAY_NS` is the mean of the random
#: part.
BASE_DELAY_NS = 40_000
MEAN_EXTRA_DELAY_NS = 80_000
#: Time between two attempts to connect to a host that does not respond.
SYN_RETRY_NS = 250 * NS_PER_MS
_FIRST_EPHEMERAL_PORT = 40_000


class Host:
    """One host: its listeners and whether it has power."""

    __slots__ = ("is_serving", "is_up", "listeners", "name", "next_port")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        #: Whether the host's processes accept new connections. If no process accepts connections,
        #: the kernel still accepts them, and takes bytes that no process reads.
        self.is_serving = True
        self.listeners: dict[int, SimListener] = {}
        self.next_port = _FIRST_EPHEMERAL_PORT


class SimListener:
    """A listening port."""

    __slots__ = ("_accept", "_max_frame_bytes", "_network", "_port", "budget", "host", "process")

    def __init__(
        self,
        network: SimNetwork,
        process: Process,
        host: Host,
        port: int,
        accept: Callable[[Transport], FrameHandler],
        max_frame_bytes: int,
        budget: ReceiveBudget | None,
    ) -> None:
        self._network = network
        self.process = process
        self.host = host
        self._port = port
        self._accept = accept
        self._max_frame_bytes = max_frame_bytes
        self.budget = budget

    @property
    def port(self) -> int:
        """The port number."""
        return self._port

    def established(self, endpoint: ConnectionEnd) -> SimTransport:
        """Accept a connection; return the transport that carries its frames."""
        return SimTransport(
            self._network, endpoint, self._accept, self._max_frame_bytes, self.budget
        )

    def close(self) -> None:
        """Stop listening; connections stay open."""
        self.process.check_alive()
        if self.host.listeners.get(self._port) is self:
            del self.host.listeners[self._port]


class _Attempt:
    """One process's attempt to open a connection to a host and port."""

    __slots__ = (
        "_handle", "_host", "_max_frame_bytes", "_network", "_open_handler", "_port", "_timer",
        "future",
    )  # fmt: skip

    def __init__(
        self,
        handle: NodeNetwork,
        host: str,
        port: int,
        open_handler: Callable[[Transport], FrameHandler],
        timeout_ms: int,
        max_frame_bytes: int,
    ) -> None:
        self._handle = handle
        self._network = handle.network
        self._host = host
        self._port = port
        self._open_handler = open_handler
        self._max_frame_bytes = max_frame_bytes
        self.future: asyncio.Future[Transport] = handle.process.loop.create_future()
        scheduler = self._network.scheduler
        self._timer = scheduler.after(
            timeout_ms * NS_PER_MS, handle.process, self._fail,
            f"{host}:{port}: no connection within {timeout_ms} ms",
        )  # fmt: skip
        link = self._network.link(handle.host.name, host)
        scheduler.at(self._network.arrival_ns(link), None, self._request_arrives)

    def _fail(self, reason: str) -> None:
        self._timer.cancel()
        if not self.future.done():
            self.future.set_exception(ConnectionLost(reason))

    def _request_arrives(self) -> None:
        network, process = self._network, self._handle.process
        if self.future.done() or not process.alive:
            return
        there = network.link(self._handle.host.name, self._host)
        back = network.link(self._host, self._handle.host.name)
        host = network.hosts.get(self._host)
        if there.cut or back.cut or host is None or not host.is_up:
            network.scheduler.after(SYN_RETRY_NS, None, self._request_arrives)
            return
        listener = host.listeners.get(self._port)
        back_ns = network.arrival_ns(back)
        if listener is None:
            reason = f"{self._host}:{self._port}: connection refused"
            network.scheduler.at(back_ns, process, self._fail, reason)
            return
        name = f"{self._handle.host.name}:{network.ephemeral_port(self._handle.host)}"
        server_name = f"{self._host}:{self._port}"
        client = ConnectionEnd(network, process, name, server_name, self._established)
        server = ConnectionEnd(
            network, listener.process, server_name, name, listener.established,
            is_accepted=True, has_budget=listener.budget is not None,
        )  # fmt: skip
        client.outgoing = server.incoming = Pipe(network, client, server, there)
        server.outgoing = client.incoming = Pipe(network, server, client, back)
        network.remember(client)
        if host.is_serving:
            network.remember(server)
        else:
            client.outgoing.vanish(is_given_up=False)
        client.outgoing.put(OPEN, network.scheduler.now_ns)
        server.outgoing.put(OPEN, back_ns)

    def _established(self, endpoint: ConnectionEnd) -> SimTransport | None:
        self._timer.cancel()
        if self.future.done():
            return None
        transport = SimTransport(self._network, endpoint, self._open_handler, self._max_frame_bytes)
        self.future.set_result(transport)
        return transport


class NodeNetwork:
    """`core.ports.Network` of one incarnation."""

    __slots__ = ("host", "network", "process")

    def __init__(self, network: SimNetwork, process: Process, host: Host) -> None:
        self.network = network
        self.process = process
        self.host = host

    def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Transport], FrameHandler],
        max_frame_bytes: int,
        budget: ReceiveBudget | None = None,
    ) -> Awaitable[Listener]:
        """Listen on the node's own host, ignoring `host`; raise EADDRINUSE if the port is in
        use.
        """
        self.process.port_call("network.listen")
        future: asyncio.Future[Listener] = self.process.loop.create_future()
        if port == 0:
            port = self.network.ephemeral_port(self.host)
        if port in self.host.listeners:
            future.set_exception(
                OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), f"{host}:{port}")
            )
            return future
        listener = SimListener(
            self.network, self.process, self.host, port, accept, max_frame_bytes, budget
        )
        self.host.listeners[port] = listener
        future.set_result(listener)
        return future

    def connect(
        self,
        host: str,
        port: int,
        open_handler: Callable[[Transport], FrameHandler],
        timeout_ms: int,
        max_frame_bytes: int,
    ) -> Awaitable[Transport]:
        """Connect to a host by name."""
        self.process.port_call("network.connect")
        return _Attempt(self, host, port, open_handler, timeout_ms, max_frame_bytes).future


class SimNetwork:
    """The simulated network: all hosts, and the links between them."""

    def __init__(
        self,
        scheduler: Scheduler,
        note: Callable[[int, str, str], None],
        violate: Callable[[str], None],
        draw: random.Random,
        cuts: random.Random,
    ) -> None:
        """`note` is called with (node id, kind, detail) for each line of the trace.

        The random stream `draw` gives delays, and `cuts` gives the positions at which a link splits
        bytes.
        """
        self.violate = violate
        self.scheduler = scheduler
        self.draw = draw
        self.cuts = cuts
        #: The checker that observes the frames on accepted connections, if there is one.
        self.frame_watch: FrameWatch | None = None
        #: The checker that observes the beginning and end of accepted connections, if there is one.
        self.connection_watch: ConnectionWatch | None = None
        self.hosts: dict[str, Host] = {}
        self._note = note
        self._links: dict[tuple[str, str], Link] = {}
        self._endpoints: dict[Process, dict[ConnectionEnd, None]] = {}

    # For faults

    def link(self, source: str, target: str) -> Link:
        """Return the link from one host to another."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[(source, target)] = Link()
        return found

    def cut(self, source: str, target: str) -> None:
        """Cut the link from `source` to `target`."""
        self.link(source, target).cut = True

    def heal(self, source: str, target: str) -> None:
        """Heal the link from `source` to `target`; bytes that were held up are sent again."""
        link = self.link(source, target)
        if link.cut:
            link.cut = False
            stalled, link.stalled = link.stalled, []
            for pipe in stalled:
                pipe.healed()

    def heal_everything(self) -> None:
        """End all faults of links and hosts: cuts, delays, clogs, splits of bytes, and hosts that
        do not serve.

        """
        for host in self.hosts.values():
            host.is_serving = True
        for (source, target), link in self._links.items():
            link.extra_ns = link.spread_ns = 0
            link.splits = False
            self.unclog(source, target)
            if link.cut:
                self.heal(source, target)

    def clog(self, source: str, target: str) -> None:
        """Clog the link from `source` to `target`: no bytes arrive, and senders stop when their
        windows are full.
        """
        self.link(source, target).clogged = True

    def unclog(self, source: str, target: str) -> None:
        """Unclog the link from `source` to `target`; the bytes that waited arrive at once."""
        link = self.link(source, target)
        if link.clogged:
            link.clogged = False
            stalled, link.stalled = link.stalled, []
            for pipe in stalled:
                pipe.flows()

    def slow_down(self, source: str, target: str, extra_ns: int, spread_ns: int) -> None:
        """Add a delay to all messages on a link; two zeros end the delay."""
        link = self.link(source, target)
        link.extra_ns = extra_ns
        link.spread_ns = spread_ns

    def reset_connections(self, process: Process) -> int:
        """Break every connection of a node, on both sides; return their number."""
        endpoints = list(self._endpoints.get(process, ()))
        for endpoint in endpoints:
            endpoint.lost("connection reset")
            endpoint.outgoing.put(RESET)
        return len(endpoints)

    def connections_of(self, process: Process) -> list[ConnectionEnd]:
        """Return the open endpoints of a process."""
        return list(self._endpoints.get(process, ()))

    def vanish(self, endpoint: ConnectionEnd, *, closes: bool) -> None:
        """Break a connection without a reset: no bytes arrive any more.

        With `closes`, `endpoint` is closed, as after a restart of its host; the other endpoint
        stays open. Without `closes`, both endpoints stay open.
        """
        endpoint.outgoing.vanish()
        endpoint.incoming.vanish()
        if closes:
            endpoint.lost("the connection is forgotten")

    # methods that the simulator and its nodes call

    def add_host(self, name: str) -> Host:
        """Return a host by name, created on first use."""
        return self.hosts.setdefault(name, Host(name))

    def handle(self, process: Process) -> NodeNetwork:
        """Return the `core.ports.Network` of a new incarnation; its host has power from now on."""
        host = self.add_host(process.host)
        host.is_up = True
        return NodeNetwork(self, process, host)

    def process_died(self, process: Process, *, power_lost: bool) -> None:
        """Close the listeners and connections of a process that died, as a kernel does."""
        host = self.hosts[process.host]
        host.is_up = not power_lost
        host.listeners = {
            port: listener
            for port, listener in host.listeners.items()
            if listener.process is not process
        }
        for endpoint in self._endpoints.pop(process, {}):
            endpoint.process_died(power_lost=power_lost)

    # For connections

    def arrival_ns(self, link: Link) -> int:
        """Return the time at which bytes sent now on `link` arrive, unless earlier bytes delay
        them.
        """
        delay_ns = BASE_DELAY_NS + int(self.draw.expovariate(1.0) * MEAN_EXTRA_DELAY_NS)
        if link.extra_ns or link.spread_ns:
            delay_ns += link.extra_ns + self.draw.randrange(link.spread_ns + 1)
        return self.scheduler.now_ns + delay_ns

    def ephemeral_port(self, host: Host) -> int:
        """Return a port that no connection or listener uses."""
        host.next_port += 1
        return host.next_port

    def remember(self, endpoint: ConnectionEnd) -> None:
        """Record that a connection's endpoint is open."""
        self._endpoints.setdefault(endpoint.process, {})[endpoint] = None

    def forget(self, endpoint: ConnectionEnd) -> None:
        """Record that a connection's endpoint is closed."""
        self._endpoints.get(endpoint.process, {}).pop(endpoint, None)

    def note_opened(self, endpoint: ConnectionEnd) -> None:
        """Report a connection that its listener is about to accept."""
        if self.connection_watch is not None:
            self.connection_watch.opened(endpoint)

    def note_delivery(self, endpoint: ConnectionEnd, frames: Sequence[memoryview]) -> None:
        """Trace the delivery of frames to a handler: their number, size and checksum."""
        check = 0
        size = 0
        for frame in frames:
            check = zlib.crc32(frame, zlib.crc32(len(frame).to_bytes(4, "big"), check))
            size += 4 + len(frame)
        self._note(
            endpoint.process.node_id,
            "frames",
            f"{endpoint.peer_name}>{endpoint.name} {len(frames)} {size} {check:08x}",
        )

    def note_lost(self, endpoint: ConnectionEnd, reason: str) -> None:
        """Trace the end of a connection on one side."""
        if endpoint.is_accepted and self.connection_watch is not None:
            self.connection_watch.lost(endpoint, reason)
        self._note(
            endpoint.process.node_id, "lost", f"{endpoint.name}-{endpoint.peer_name} {reason}"
        )
