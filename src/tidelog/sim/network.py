"""The simulated network: hosts, links between them, and connections that carry frames.

Every connection is two pipes, one per direction, first in first out. A pipe's items arrive after
delays drawn from the seed; items due together arrive in one read event. A cut direction stalls its
pipes until it is healed, or until the connection is given up; it never reorders. The death of a
process resets its connections, and may take what was still on the way. Frames are whole here
because senders send whole frames; bytes are immutable copies.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from tidelog.core import limits
from tidelog.core.errors import ConnectionLost
from tidelog.core.ports import Buffer, FrameHandler, Listener, Transport
from tidelog.sim.loop import NS_PER_MS, NS_PER_S, Scheduler

if TYPE_CHECKING:
    from tidelog.sim.node import Incarnation
    from tidelog.sim.world import World

#: Delay of a healthy link: a base, and a drawn part that is exponential around its mean.
BASE_DELAY_NS = 40_000
MEAN_EXTRA_DELAY_NS = 80_000
#: A connection whose direction stays cut with data on the way is given up after a time drawn here.
GIVE_UP_NS = (8 * NS_PER_S, 30 * NS_PER_S)
#: Time between attempts of an unanswered connection request.
SYN_RETRY_NS = 250 * NS_PER_MS
#: How long the peers of a host that lost power hear nothing.
POWER_LOSS_SILENCE_NS = (NS_PER_MS, 5 * NS_PER_S)
#: Bytes that two kernels take between them before `queued_bytes` grows.
KERNEL_BUFFER_BYTES = 256 * limits.KIB
_FIRST_EPHEMERAL_PORT = 40_000

#: Items of a pipe that are no bytes.
_OPEN = object()
_FIN = object()
_RESET = object()


class Link:
    """One direction between two hosts."""

    __slots__ = ("cut", "extra_ns", "spread_ns", "stalled")

    def __init__(self) -> None:
        self.cut = False
        #: A spike: added to each delay.
        self.extra_ns = 0
        #: A spike's drawn part, uniform.
        self.spread_ns = 0
        self.stalled: list[Pipe] = []


class Host:
    """One host: its listeners and whether it has power."""

    __slots__ = ("is_up", "listeners", "name", "next_port")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.listeners: dict[int, SimListener] = {}
        self.next_port = _FIRST_EPHEMERAL_PORT


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_draining", "_is_scheduled", "_is_stalled", "_items", "_network", "in_flight_bytes",
        "last_due_ns", "link", "source", "target",
    )  # fmt: skip

    def __init__(self, network: SimNetwork, source: Endpoint, target: Endpoint, link: Link) -> None:
        self._network = network
        self.source = source
        self.target = target
        self.link = link
        self.last_due_ns = 0
        self.in_flight_bytes = 0
        self._items: deque[tuple[int, object]] = deque()
        self._is_scheduled = False
        self._is_stalled = False
        self._draining = False

    def put(self, item: object, due_ns: int | None = None) -> None:
        """Send an item; it arrives after everything sent before."""
        network = self._network
        if due_ns is None:
            due_ns = network.arrival_ns(self.link)
        if isinstance(item, bytes):
            due_ns += len(item)  # a gigabyte a second
            self.in_flight_bytes += len(item)
            if self.queued_bytes > limits.MAX_SEND_QUEUE_BYTES:
                self._draining = True
        self.last_due_ns = max(self.last_due_ns, due_ns)
        self._items.append((self.last_due_ns, item))
        self._schedule()

    @property
    def queued_bytes(self) -> int:
        """Bytes that the kernels have not taken."""
        return max(0, self.in_flight_bytes - KERNEL_BUFFER_BYTES)

    def cut_short(self, draw: random.Random) -> None:
        """The sender is gone: only a drawn first part of what is on the way arrives."""
        if self._items:
            least = 1 if self._items[0][1] is _OPEN else 0
            kept = max(least, draw.randrange(len(self._items) + 1))
            while len(self._items) > kept:
                self._items.pop()

    def _schedule(self) -> None:
        if self._items and not self._is_scheduled and not self._is_stalled:
            self._is_scheduled = True
            scheduler = self._network.scheduler
            scheduler.at(self._items[0][0], self.target.incarnation, self._arrive)

    def healed(self) -> None:
        """The direction works again: what stalled arrives after a retransmission."""
        self._is_stalled = False
        delay_ns = self._network.draw.randrange(NS_PER_MS, 400 * NS_PER_MS)
        due_ns = self._network.scheduler.now_ns + delay_ns
        self._items = deque([(max(due_ns, at_ns), item) for at_ns, item in self._items])
        self.last_due_ns = max(self.last_due_ns, due_ns)
        self._schedule()

    def reset_by_timeout(self) -> None:
        """The sender's kernel gives up."""
        if self.link.cut and self._items and not self.source.is_gone:
            self._items.clear()
            self.source.lost("connection timed out")
            self.put(_RESET)

    def _arrive(self) -> None:
        self._is_scheduled = False
        network = self._network
        if self.link.cut:
            self._is_stalled = True
            self.link.stalled.append(self)
            give_up_ns = network.draw.randrange(*GIVE_UP_NS)
            network.scheduler.after(give_up_ns, None, self.reset_by_timeout)
            return
        now_ns = network.scheduler.now_ns
        chunks: list[bytes] = []
        ending: object = None
        items = self._items
        while items and items[0][0] <= now_ns:
            item = items.popleft()[1]
            if isinstance(item, bytes):
                chunks.append(item)
            elif item is _OPEN:
                self.target.opened()
            else:
                ending = item
                items.clear()
        self._schedule()
        if chunks:
            self._take(chunks)
        if ending is _FIN:
            self.target.peer_closed("closed by the peer")
        elif ending is _RESET:
            self.target.peer_closed("connection reset by the peer")

    def _take(self, chunks: list[bytes]) -> None:
        target = self.target
        if target.is_gone:
            self.in_flight_bytes = 0
            if not self.source.is_gone:
                target.outgoing.put(_RESET)
            return
        if target.is_reading:
            self.in_flight_bytes -= sum(map(len, chunks))
            self.check_drained()
        target.receive(chunks)

    def read(self, size_bytes: int) -> None:
        """The target has taken bytes that waited for `resume_reading`."""
        self.in_flight_bytes -= size_bytes
        self.check_drained()

    def check_drained(self) -> None:
        """Tell the sender once its queue is empty after it was over the limit."""
        if self._draining and self.queued_bytes == 0 and not self.source.is_gone:
            self._draining = False
            source = self.source
            self._network.scheduler.after(0, source.incarnation, source.drained)


class Endpoint:
    """One side of a connection; `core.ports.Transport` for its node."""

    __slots__ = (
        "_corked", "_established", "_in_frames", "_network", "_waiting", "handler", "incarnation",
        "incoming", "is_gone", "is_reading", "max_frame_bytes", "name", "outgoing", "peer_name",
    )  # fmt: skip

    outgoing: Pipe
    incoming: Pipe

    def __init__(
        self,
        network: SimNetwork,
        incarnation: Incarnation,
        name: str,
        peer_name: str,
        max_frame_bytes: int,
        established: Callable[[Endpoint], FrameHandler | None],
    ) -> None:
        self._network = network
        self.incarnation = incarnation
        self.name = name
        self.peer_name = peer_name
        self.max_frame_bytes = max_frame_bytes
        self.handler: FrameHandler | None = None
        self.is_gone = False
        self.is_reading = True
        self._established = established
        self._in_frames = False
        self._corked: list[bytes] = []
        self._waiting: list[bytes] = []

    # Transport

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""
        return self.peer_name

    @property
    def queued_bytes(self) -> int:
        """Bytes that the kernel has not taken."""
        return self.outgoing.queued_bytes

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send whole frames; copies them."""
        self.incarnation.port_call("network.send")
        if self.is_gone:
            return
        self._corked.append(b"".join(parts))
        if not self._in_frames:
            self._uncork()

    def keep_frames(self) -> None:
        """Nothing to do: frames are immutable copies."""
        self.incarnation.check_alive()

    def pause_reading(self) -> None:
        """Deliver no more frames; they wait in the kernels."""
        self.incarnation.check_alive()
        self.is_reading = False

    def resume_reading(self) -> None:
        """Deliver what waited, as an event of its own."""
        self.incarnation.check_alive()
        if not self.is_reading and not self.is_gone:
            self.is_reading = True
            if self._waiting:
                self._network.scheduler.after(0, self.incarnation, self._deliver_waiting)

    def close(self, reason: str) -> None:
        """Send what was given to `send`, then close."""
        self.incarnation.port_call("network.close")
        if not self.is_gone:
            self._uncork()
            self._gone(reason)
            self.outgoing.put(_FIN)

    # The network's side

    def opened(self) -> None:
        """The connection is established on this side."""
        if not self.is_gone:
            self.handler = self._established(self)
            if self.handler is None:
                self._gone("given up")
                self.outgoing.put(_RESET)

    def receive(self, chunks: list[bytes]) -> None:
        """Bytes arrived: hand whole frames to the handler, or keep them while it does not read."""
        if not self.is_reading or self._waiting:
            self._waiting.extend(chunks)
            return
        frames: list[memoryview] = []
        for chunk in chunks:
            if not self._split(chunk, frames):
                return
        self._network.note_delivery(self, chunks, len(frames))
        handler = self.handler
        if handler is None:
            raise RuntimeError(f"{self.name}: bytes before the connection was open")
        self._in_frames = True
        try:
            handler.frames_received(frames)
        finally:
            self._in_frames = False
        if self._corked:
            self._uncork()

    def _split(self, chunk: bytes, frames: list[memoryview]) -> bool:
        view = memoryview(chunk)
        position = 0
        while position < len(chunk):
            size = int.from_bytes(view[position : position + 4], "big", signed=True)
            if size < 0 or size > self.max_frame_bytes:
                self._gone(f"a frame of {size} bytes; at most {self.max_frame_bytes} are taken")
                self.outgoing.put(_RESET)
                return False
            end = position + 4 + size
            if end > len(chunk):
                raise RuntimeError(f"{self.peer_name} sent less than a whole frame")
            frames.append(view[position + 4 : end])
            position = end
        return True

    def _deliver_waiting(self) -> None:
        if self.is_reading and not self.is_gone and self._waiting:
            chunks, self._waiting = self._waiting, []
            self.incoming.read(sum(map(len, chunks)))
            self.receive(chunks)

    def _uncork(self) -> None:
        corked, self._corked = self._corked, []
        if corked and not self.is_gone:
            for chunk in corked:
                self.outgoing.put(chunk)

    def peer_closed(self, reason: str) -> None:
        """FIN or RST arrived."""
        if not self.is_gone:
            self.lost(reason)
            self.outgoing.put(_RESET)

    def lost(self, reason: str) -> None:
        """The connection is gone without a wish of ours."""
        if not self.is_gone:
            self._gone(reason)

    def _gone(self, reason: str) -> None:
        self.is_gone = True
        self._waiting.clear()
        self._network.forget(self)
        self._network.note_lost(self, reason)
        self._network.scheduler.after(0, self.incarnation, self._tell_lost, reason)

    def _tell_lost(self, reason: str) -> None:
        if self.handler is not None:
            self.handler.connection_lost(reason)

    def drained(self) -> None:
        """The queue is empty again."""
        if self.handler is not None and not self.is_gone:
            self.handler.send_queue_drained()

    def process_died(self, *, power_lost: bool) -> None:
        """The connection is reset; part of what was sent may not arrive.

        A killed process leaves that to its kernel; after a power loss the peer hears of it later.
        """
        self.is_gone = True
        self._waiting.clear()
        network = self._network
        self.outgoing.cut_short(network.draw)
        silence_ns = network.draw.randrange(*POWER_LOSS_SILENCE_NS) if power_lost else 0
        self.outgoing.put(_RESET, network.arrival_ns(self.outgoing.link) + silence_ns)


class SimListener:
    """A listening port."""

    __slots__ = ("_port", "accept", "host", "incarnation", "max_frame_bytes")

    def __init__(
        self,
        incarnation: Incarnation,
        host: Host,
        port: int,
        accept: Callable[[Transport], FrameHandler],
        max_frame_bytes: int,
    ) -> None:
        self.incarnation = incarnation
        self.host = host
        self._port = port
        self.accept = accept
        self.max_frame_bytes = max_frame_bytes

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    def close(self) -> None:
        """Listen no longer; connections stay."""
        self.incarnation.check_alive()
        if self.host.listeners.get(self._port) is self:
            del self.host.listeners[self._port]


class _Attempt:
    """A connection being made."""

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
        self.future: asyncio.Future[Transport] = handle.incarnation.loop.create_future()
        scheduler = self._network.scheduler
        self._timer = scheduler.after(
            timeout_ms * NS_PER_MS, handle.incarnation, self._fail,
            f"{host}:{port}: no connection within {timeout_ms} ms",
        )  # fmt: skip
        link = self._network.link(handle.host.name, host)
        scheduler.at(self._network.arrival_ns(link), None, self._request_arrives)

    def _fail(self, reason: str) -> None:
        self._timer.cancel()
        if not self.future.done():
            self.future.set_exception(ConnectionLost(reason))

    def _request_arrives(self) -> None:
        network, incarnation = self._network, self._handle.incarnation
        if self.future.done() or not incarnation.alive:
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
            network.scheduler.at(back_ns, incarnation, self._fail, reason)
            return
        name = f"{self._handle.host.name}:{network.ephemeral_port(self._handle.host)}"
        server_name = f"{self._host}:{self._port}"
        client = Endpoint(
            network, incarnation, name, server_name, self._max_frame_bytes, self._established
        )
        server = Endpoint(
            network, listener.incarnation, server_name, name, listener.max_frame_bytes,
            listener.accept,
        )  # fmt: skip
        client.outgoing = server.incoming = Pipe(network, client, server, there)
        server.outgoing = client.incoming = Pipe(network, server, client, back)
        network.remember(client)
        network.remember(server)
        client.outgoing.put(_OPEN, network.scheduler.now_ns)
        server.outgoing.put(_OPEN, back_ns)

    def _established(self, endpoint: Endpoint) -> FrameHandler | None:
        self._timer.cancel()
        if self.future.done():
            return None
        handler = self._open_handler(endpoint)
        self.future.set_result(endpoint)
        return handler


class NodeNetwork:
    """`core.ports.Network` of one incarnation."""

    __slots__ = ("host", "incarnation", "network")

    def __init__(self, network: SimNetwork, incarnation: Incarnation, host: Host) -> None:
        self.network = network
        self.incarnation = incarnation
        self.host = host

    def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Transport], FrameHandler],
        max_frame_bytes: int,
    ) -> Awaitable[Listener]:
        """Listen on the node's own host, whatever `host` says; EADDRINUSE when taken."""
        self.incarnation.port_call("network.listen")
        future: asyncio.Future[Listener] = self.incarnation.loop.create_future()
        if port == 0:
            port = self.network.ephemeral_port(self.host)
        if port in self.host.listeners:
            future.set_exception(
                OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), f"{host}:{port}")
            )
            return future
        listener = SimListener(self.incarnation, self.host, port, accept, max_frame_bytes)
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
        self.incarnation.port_call("network.connect")
        return _Attempt(self, host, port, open_handler, timeout_ms, max_frame_bytes).future


class SimNetwork:
    """All hosts and links."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.scheduler: Scheduler = world.scheduler
        self.draw = draw
        self.hosts: dict[str, Host] = {}
        self._world = world
        self._links: dict[tuple[str, str], Link] = {}
        self._endpoints: dict[Incarnation, dict[Endpoint, None]] = {}

    # For faults

    def link(self, source: str, target: str) -> Link:
        """The direction from one host to another."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[(source, target)] = Link()
        return found

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from `source` to `target`."""
        self.link(source, target).cut = True

    def heal(self, source: str, target: str) -> None:
        """Let everything pass again; what stalled is sent once more."""
        link = self.link(source, target)
        if link.cut:
            link.cut = False
            stalled, link.stalled = link.stalled, []
            for pipe in stalled:
                pipe.healed()

    def heal_everything(self) -> None:
        """Heal every cut and end every spike."""
        for (source, target), link in self._links.items():
            link.extra_ns = link.spread_ns = 0
            if link.cut:
                self.heal(source, target)

    def slow_down(self, source: str, target: str, extra_ns: int, spread_ns: int) -> None:
        """Add a delay to one direction, 0 and 0 to end it."""
        link = self.link(source, target)
        link.extra_ns = extra_ns
        link.spread_ns = spread_ns

    def reset_connections(self, incarnation: Incarnation) -> int:
        """Break every connection of a node, on both sides; returns how many there were."""
        endpoints = list(self._endpoints.get(incarnation, ()))
        for endpoint in endpoints:
            endpoint.lost("connection reset")
            endpoint.outgoing.put(_RESET)
        return len(endpoints)

    # For the world

    def add_host(self, name: str) -> Host:
        """A host by name, made when it is new."""
        return self.hosts.setdefault(name, Host(name))

    def handle(self, incarnation: Incarnation) -> NodeNetwork:
        """The port of one incarnation."""
        host = self.add_host(incarnation.node.host)
        host.is_up = True
        return NodeNetwork(self, incarnation, host)

    def process_died(self, incarnation: Incarnation, *, power_lost: bool) -> None:
        """Close what the process had open, as its kernel does."""
        host = self.hosts[incarnation.node.host]
        host.is_up = not power_lost
        host.listeners = {
            port: listener
            for port, listener in host.listeners.items()
            if listener.incarnation is not incarnation
        }
        for endpoint in self._endpoints.pop(incarnation, {}):
            endpoint.process_died(power_lost=power_lost)

    # For connections

    def arrival_ns(self, link: Link) -> int:
        """When something sent now arrives, the order of its pipe apart."""
        delay_ns = BASE_DELAY_NS + int(self.draw.expovariate(1.0) * MEAN_EXTRA_DELAY_NS)
        if link.extra_ns or link.spread_ns:
            delay_ns += link.extra_ns + self.draw.randrange(link.spread_ns + 1)
        return self.scheduler.now_ns + delay_ns

    def ephemeral_port(self, host: Host) -> int:
        """A port that nobody has."""
        host.next_port += 1
        return host.next_port

    def remember(self, endpoint: Endpoint) -> None:
        """An endpoint is open."""
        self._endpoints.setdefault(endpoint.incarnation, {})[endpoint] = None

    def forget(self, endpoint: Endpoint) -> None:
        """An endpoint is closed."""
        self._endpoints.get(endpoint.incarnation, {}).pop(endpoint, None)

    def note_delivery(self, endpoint: Endpoint, chunks: list[bytes], frames: int) -> None:
        """Frames are handed over."""
        check = 0
        size = 0
        for chunk in chunks:
            check = zlib.crc32(chunk, check)
            size += len(chunk)
        self._world.note(
            endpoint.incarnation.node_id,
            "frames",
            f"{endpoint.peer_name}>{endpoint.name} {frames} {size} {check:08x}",
        )

    def note_lost(self, endpoint: Endpoint, reason: str) -> None:
        """A connection ended on one side."""
        self._world.note(
            endpoint.incarnation.node_id, "lost", f"{endpoint.name}-{endpoint.peer_name} {reason}"
        )
