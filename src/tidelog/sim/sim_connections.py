"""Connections of the simulated network. A connection has two pipes, one per direction, first in
first out.

A `ConnectionEnd` is the byte stream of one side; `sim_transport` has the frames above it. Items of
a pipe (pieces of the byte stream) arrive after random delays; items that are due together arrive in
one read event. While a link is cut, its pipes deliver nothing, until the link is healed or the
sender's kernel gives the connection up. A clogged link accepts bytes, and delivers them all at once
when it is unclogged. Cut and clogged links do not reorder items. A vanished connection (broken
without a reset) accepts bytes until its buffer is full; a side notices the loss only when its own
kernel gives up. The death of a process resets its connections and may lose items in flight.

On most links, each item is one whole frame, and a read returns all bytes that have arrived. A link
that splits its bytes cuts them anywhere, takes only a part of some sends, and delivers reads in
pieces. Bytes of items are immutable copies.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.core import limits
from tidelog.core.ports import Buffer, StreamHandler
from tidelog.core.receive_budget import SMALL_REQUEST_BYTES
from tidelog.sim.loop import NS_PER_MS, NS_PER_S, Scheduler, TimedCall
from tidelog.sim.process import Process

#: Shortest and longest time in ns after which a kernel gives up a connection with undelivered data.
GIVE_UP_NS = (8 * NS_PER_S, 30 * NS_PER_S)
#: Shortest and longest time in ns until the peers of a host that lost power get a reset.
POWER_LOSS_SILENCE_NS = (NS_PER_MS, 5 * NS_PER_S)
#: Bytes that the kernels of both sides buffer together. A send is taken whole if the buffers have
#: any room.
KERNEL_BUFFER_BYTES = 256 * limits.KIB
#: Time in ns after `close_reading` during which queued bytes are still sent.
LINGER_NS = NS_PER_S
#: Maximum additional delay in ns of a piece of split bytes, and of the bytes after a partial send.
_PIECE_DELAY_NS = 4 * NS_PER_MS
#: On a link that splits bytes, the share of the sends of which the kernel takes only a part.
_PARTIAL_SENDS = 0.25
_SIZE_BYTES = 4

#: What a pipe carries besides bytes: OPEN opens a connection, FIN ends it, RESET breaks it (RST).
OPEN = object()
FIN = object()
RESET = object()


class ConnectionHandler(StreamHandler, Protocol):
    """The handler of frames on one side of a connection."""

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait in the process, because the kernel has not taken them yet."""


class FrameWatch(Protocol):
    """An observer of requests and responses on accepted connections."""

    def received(self, endpoint: ConnectionEnd, frames: Sequence[memoryview]) -> None:
        """Follow requests that arrived."""

    def sent(self, endpoint: ConnectionEnd, frame: bytes) -> None:
        """Follow a response that the broker sends; `frame` begins with its size."""


class ConnectionWatch(FrameWatch, Protocol):
    """An observer of the begin and end of accepted connections, and of their frames."""

    def opened(self, endpoint: ConnectionEnd) -> None:
        """Follow a connection that its listener is about to accept."""

    def lost(self, endpoint: ConnectionEnd, reason: str) -> None:
        """Follow the end of a connection on the side that accepted it."""


class ConnectionNetwork(Protocol):
    """The part of the network that connections and their transports use."""

    #: The random stream for the delays of messages.
    draw: random.Random
    #: The random stream for the positions at which a link splits bytes.
    cuts: random.Random
    #: Observer of the frames on accepted connections.
    frame_watch: FrameWatch | None

    @property
    def violate(self) -> Callable[[str], None]:
        """Report a violation."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of the run."""

    def arrival_ns(self, link: Link) -> int:
        """Return the time at which bytes sent now on `link` arrive, unless earlier bytes delay
        them.
        """

    def forget(self, endpoint: ConnectionEnd) -> None:
        """Record that a connection's endpoint is closed."""

    def note_opened(self, endpoint: ConnectionEnd) -> None:
        """Trace a connection that its listener is about to accept."""

    def note_lost(self, endpoint: ConnectionEnd, reason: str) -> None:
        """Trace the end of a connection on one side."""

    def note_delivery(self, endpoint: ConnectionEnd, frames: Sequence[memoryview]) -> None:
        """Trace the delivery of frames to a handler."""


class Link:
    """A link: one direction between two hosts."""

    __slots__ = ("clogged", "cut", "extra_ns", "splits", "spread_ns", "stalled")

    def __init__(self) -> None:
        self.cut = False
        #: Whether sends and reads on the link may end anywhere, even within a frame.
        self.splits = False
        #: Whether the link holds all bytes back without a loss, while the TCP windows fill up.
        self.clogged = False
        #: Extra delay in ns of each message while a fault slows the link.
        self.extra_ns = 0
        #: Largest random delay in ns that a fault adds to each message, uniformly distributed.
        self.spread_ns = 0
        self.stalled: list[Pipe] = []


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_has_vanished", "_is_scheduled", "_is_stalled", "_items", "_network",
        "in_flight_bytes", "last_due_ns", "link", "sent_frames", "source", "target",
    )  # fmt: skip

    def __init__(
        self, network: ConnectionNetwork, source: ConnectionEnd, target: ConnectionEnd, link: Link
    ) -> None:
        self._network = network
        self.source = source
        self.target = target
        self.link = link
        self.last_due_ns = 0
        self.in_flight_bytes = 0
        #: Frames that the source has sent and the target has not received; received frames are
        #: compared with them.
        self.sent_frames: deque[bytes] = deque()
        self._items: deque[tuple[int, object]] = deque()
        self._is_scheduled = False
        self._is_stalled = False
        self._has_vanished = False

    def put(self, item: object, due_ns: int | None = None) -> None:
        """Send an item; it arrives after all items that were sent before."""
        network = self._network
        if due_ns is None:
            due_ns = network.arrival_ns(self.link)
        if isinstance(item, bytes):
            due_ns += len(item)  # the time for the bytes at a gigabyte a second
            self.in_flight_bytes += len(item)
        if self._has_vanished:
            return
        self.last_due_ns = max(self.last_due_ns, due_ns)
        self._items.append((self.last_due_ns, item))
        self._schedule()

    def vanish(self, *, is_given_up: bool = True) -> None:
        """Drop all items in flight and all later items, without notice to either side.

        With `is_given_up`, the sender's kernel gives the connection up after a while. Without it,
        the peer's kernel still acknowledges bytes, although no process reads them, so the sender's
        kernel never gives up.
        """
        self._has_vanished = True
        self._items.clear()
        if is_given_up:
            network = self._network
            network.scheduler.after(network.draw.randrange(*GIVE_UP_NS), None, self._give_up)

    def _give_up(self) -> None:
        if not self.source.is_gone:
            self.source.lost("connection timed out")

    @property
    def is_full(self) -> bool:
        """Whether the kernels' buffers for this direction are full."""
        return self.in_flight_bytes >= KERNEL_BUFFER_BYTES

    def put_split(self, data: bytes) -> None:
        """Send bytes in pieces, each of which arrives alone or together with later bytes."""
        draw = self._network.cuts
        position = 0
        for cut in _cuts(draw, len(data)):
            delay_ns = draw.randrange(_PIECE_DELAY_NS)
            self.put(data[position:cut], self._network.arrival_ns(self.link) + delay_ns)
            position = cut

    def cut_short(self, draw: random.Random) -> None:
        """Keep only a random first part of the items in flight, because the sending process has
        died.
        """
        if self._items:
            least = 1 if self._items[0][1] is OPEN else 0
            kept = max(least, draw.randrange(len(self._items) + 1))
            while len(self._items) > kept:
                self._items.pop()

    def _schedule(self) -> None:
        if self._items and not self._is_scheduled and not self._is_stalled:
            self._is_scheduled = True
            scheduler = self._network.scheduler
            scheduler.at(self._items[0][0], self.target.process, self._arrive)

    def healed(self) -> None:
        """Resume a healed direction: stalled items arrive after a retransmission."""
        self._is_stalled = False
        delay_ns = self._network.draw.randrange(NS_PER_MS, 400 * NS_PER_MS)
        due_ns = self._network.scheduler.now_ns + delay_ns
        self._items = deque([(max(due_ns, at_ns), item) for at_ns, item in self._items])
        self.last_due_ns = max(self.last_due_ns, due_ns)
        self._schedule()

    def flows(self) -> None:
        """Resume an unclogged direction: all waiting items arrive at once."""
        self._is_stalled = False
        now_ns = self._network.scheduler.now_ns
        self._items = deque([(max(now_ns, at_ns), item) for at_ns, item in self._items])
        self._schedule()

    def reset_by_timeout(self) -> None:
        """Reset the connection if its link is still cut, because the sender's kernel gives up."""
        if self.link.cut and self._items and not self.source.is_gone:
            self._items.clear()
            self.source.lost("connection timed out")
            self.put(RESET)

    def _arrive(self) -> None:
        self._is_scheduled = False
        network = self._network
        if self.link.cut:
            self._is_stalled = True
            self.link.stalled.append(self)
            give_up_ns = network.draw.randrange(*GIVE_UP_NS)
            network.scheduler.after(give_up_ns, None, self.reset_by_timeout)
            return
        if self.link.clogged:
            self._is_stalled = True
            self.link.stalled.append(self)
            return
        now_ns = network.scheduler.now_ns
        chunks: list[bytes] = []
        ending: object = None
        items = self._items
        while items and items[0][0] <= now_ns:
            item = items.popleft()[1]
            if isinstance(item, bytes):
                chunks.append(item)
            elif item is OPEN:
                self.target.opened()
            else:
                ending = item
                items.clear()
        self._schedule()
        if chunks:
            self._take(chunks)
        if ending is FIN:
            if self.link.splits:
                self.target.read_rest()
            self.target.peer_closed("closed by the peer")
        elif ending is RESET:
            self.target.peer_closed("connection reset by the peer")

    def _take(self, chunks: list[bytes]) -> None:
        target = self.target
        if target.is_gone:
            self.in_flight_bytes = 0
            if not self.source.is_gone:
                target.outgoing.put(RESET)
            return
        target.receive(chunks)

    def read(self, size_bytes: int) -> None:
        """Note that the target has read bytes, so that the sender's buffer may have room again."""
        was_full = self.is_full
        self.in_flight_bytes -= size_bytes
        if was_full and not self.is_full:
            self.source.has_room()


def _cuts(draw: random.Random, size: int) -> list[int]:
    """Return the ascending positions at which `size` bytes are cut; the last position is the end.

    Many cuts are within the first six bytes, near the size field of a frame, or right before the
    last byte.
    """
    cuts = [size]
    for _ in range(draw.randrange(4) if size > 1 else 0):
        edge = draw.choice((min(size, 6), size))
        cut = draw.randrange(1, edge) if draw.random() < 0.8 else size - 1
        if cut not in cuts:
            cuts.append(cut)
    return sorted(cuts)


class ConnectionEnd:
    """One side of a connection; the `core.ports.ByteStream` of its node."""

    __slots__ = (
        "_established", "_has_split", "_is_closed", "_is_taking", "_linger", "_network",
        "_on_writable", "_unframed", "_waiting", "asked", "handler", "has_budget", "incoming",
        "is_accepted", "is_gone", "is_reading", "name", "outgoing", "peer_name", "process",
    )  # fmt: skip

    outgoing: Pipe
    incoming: Pipe

    def __init__(
        self,
        network: ConnectionNetwork,
        process: Process,
        name: str,
        peer_name: str,
        established: Callable[[ConnectionEnd], ConnectionHandler | None],
        *,
        is_accepted: bool = False,
        has_budget: bool = False,
    ) -> None:
        """`has_budget` says whether the reader of a large frame must wait for memory after the
        frame's first bytes.
        """
        self._network = network
        #: Whether this side accepted the connection.
        self.is_accepted = is_accepted
        self.has_budget = has_budget
        #: API keys of requests without a response yet, by correlation id, on a watched connection.
        self.asked: dict[bytes, int] = {}
        self.process = process
        self.name = name
        self.peer_name = peer_name
        self.handler: ConnectionHandler | None = None
        #: Whether the handler was informed, or soon will be, that no more bytes will be read.
        self.is_gone = False
        #: Whether both reading and sending have ended.
        self._is_closed = False
        self.is_reading = True
        self._established = established
        #: The first bytes of a frame that the process has sent in part.
        self._unframed = b""
        #: Whether a link that splits bytes has carried data of this connection, so that items need
        #: not be whole frames any more.
        self._has_split = False
        #: Whether the kernel takes bytes; False for a while after it took only a part of a send.
        self._is_taking = True
        self._on_writable: Callable[[], None] | None = None
        self._linger: TimedCall | None = None
        #: Bytes that have arrived and are not read.
        self._waiting: list[bytes] = []

    # ByteStream

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""
        return self.peer_name

    def has_ended(self) -> bool:
        """Return whether the connection has ended."""
        return self.is_gone

    def send(self, data: Buffer, /) -> int:
        """Send copies of bytes, as `sendmsg` does."""
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        """Send copies of bytes; return how many the kernel takes: all, if it has any room."""
        data = b"".join(buffers)
        if self._is_closed:
            return len(data)  # the connection is reset, but the sender does not know yet
        if self.outgoing.is_full or not self._is_taking:
            raise BlockingIOError
        if self.outgoing.link.splits:
            self._has_split = True
            data = self._part_of(data)
            self.outgoing.put_split(self._unframed + data)
            self._unframed = b""
        elif self._has_split:
            self.outgoing.put(data)
        else:
            self._put_frames(self._unframed + data)
        return len(data)

    def _part_of(self, data: bytes) -> bytes:
        """Return the bytes that the kernel takes: all, or a first part of them."""
        draw = self._network.cuts
        if len(data) > 1 and draw.random() < _PARTIAL_SENDS:
            self._is_taking = False
            delay_ns = draw.randrange(_PIECE_DELAY_NS)
            self._network.scheduler.after(delay_ns, self.process, self._takes_again)
            return data[: draw.randrange(1, len(data))]
        return data

    def _put_frames(self, data: bytes) -> None:
        """Send each whole frame as one item; keep the beginning of an incomplete frame."""
        position = 0
        while len(data) - position >= _SIZE_BYTES:
            size = int.from_bytes(data[position : position + _SIZE_BYTES], "big", signed=True)
            end = position + _SIZE_BYTES + max(size, 0)
            if end > len(data):
                break
            self.outgoing.put(data[position:end])
            position = end
        self._unframed = data[position:]

    def _takes_again(self) -> None:
        self._is_taking = True
        self._writable()

    def watch_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the kernels have room again."""
        self._on_writable = callback

    def unwatch_writable(self) -> None:
        """Cancel the callback of `watch_writable`."""
        self._on_writable = None

    def pause_reading(self) -> None:
        """Stop reading, so that bytes stay in the kernels."""
        self.is_reading = False

    def resume_reading(self) -> None:
        """Resume reading; waiting bytes arrive in a separate event."""
        if not self.is_reading and not self.is_gone:
            self.is_reading = True
            if self._waiting:
                self._network.scheduler.after(0, self.process, self._read)

    def close_reading(self, reason: str, on_over: Callable[[], None]) -> None:
        """Report to the handler that reading has ended; bytes that are queued may still be sent for
        `LINGER_NS`.
        """
        if not self.is_gone:
            self._gone(reason)
            self._linger = self._network.scheduler.after(LINGER_NS, self.process, on_over)

    def close(self, reason: str) -> None:
        """Close the connection; bytes that the kernel has already taken are still delivered."""
        if not self._is_closed:
            self._close()
            if self._unframed:
                self.outgoing.put(self._unframed)
            self._gone(reason)
            self.outgoing.put(FIN)

    def abort(self, reason: str) -> None:
        """Reset the connection; bytes under way are lost."""
        if not self._is_closed:
            self._close()
            self._gone(reason)
            self.outgoing.cut_short(self._network.draw)
            self.outgoing.put(RESET)

    def _close(self) -> None:
        self._is_closed = True
        self._on_writable = None
        if self._linger is not None:
            self._linger.cancel()

    # The network's side

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait in this process for the kernel."""
        return 0 if self.handler is None else self.handler.queued_bytes

    def opened(self) -> None:
        """Establish the connection on this side."""
        if not self.is_gone:
            if self.is_accepted:
                self._network.note_opened(self)
            self.handler = self._established(self)
            if self.handler is None:
                self.lost("given up")
                self.outgoing.put(RESET)

    def receive(self, chunks: list[bytes]) -> None:
        """Let the handler read bytes that arrived, or keep them while it does not read."""
        is_first = not self._waiting
        self._waiting.extend(chunks)
        if self.is_reading and is_first:
            self._read()

    def _read(self) -> None:
        """Read the bytes that have arrived; on a link that splits bytes, read them in pieces, in
        separate events.
        """
        while self._waiting and self.is_reading and not self.is_gone:
            splits = self.incoming.link.splits
            self._read_once(in_pieces=splits)
            if splits and self._waiting and self.is_reading:
                self._network.scheduler.after(0, self.process, self._read)
                return

    def read_rest(self) -> None:
        """Read the pieces that arrived before the end of the connection."""
        while self._waiting and self.is_reading and not self.is_gone:
            self._read_once(in_pieces=True)

    def _read_once(self, *, in_pieces: bool) -> None:
        """Read all bytes that have arrived, or as many as a real connection's buffer has room for.

        The rest of a large request may have to wait for room in the receive budget.
        """
        if self.handler is None:
            raise RuntimeError(f"{self.name}: bytes before the connection was open")
        waiting = self._waiting
        data = waiting[0] if len(waiting) == 1 else b"".join(waiting)
        in_pieces = in_pieces or (self.has_budget and len(data) > SMALL_REQUEST_BYTES)
        buffer = self.handler.get_buffer(-1 if in_pieces else len(data))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        self._waiting = [data[size:]] if size < len(data) else []
        self.incoming.read(size)
        self.handler.buffer_updated(size)

    def peer_closed(self, reason: str) -> None:
        """Close this side, because the peer's FIN or RST has arrived."""
        if not self.is_gone:
            self.lost(reason)
            self.outgoing.put(RESET)

    def lost(self, reason: str) -> None:
        """Close this side, because the connection broke."""
        self._close()
        self._gone(reason)

    def _gone(self, reason: str) -> None:
        """Report to the handler, at most once, that reading has ended."""
        if self.is_gone:
            return
        self.is_gone = True
        self._waiting.clear()
        self._network.forget(self)
        self._network.note_lost(self, reason)
        self._network.scheduler.after(0, self.process, self._report_loss, reason)

    def _report_loss(self, reason: str) -> None:
        if self.handler is not None:
            self.handler.stream_lost(reason)

    def has_room(self) -> None:
        """The kernels have room again: let the handler send, in a separate event."""
        if self._on_writable is not None:
            self._network.scheduler.after(0, self.process, self._writable)

    def _writable(self) -> None:
        if self._on_writable is not None:
            self._on_writable()

    def process_died(self, *, power_lost: bool) -> None:
        """Reset the connection; part of the bytes in flight may be lost.

        If the process was killed, its kernel resets the connection at once. After a power loss, the
        peer gets the reset later.
        """
        self.is_gone = self._is_closed = True
        self._waiting.clear()
        network = self._network
        self.outgoing.cut_short(network.draw)
        silence_ns = network.draw.randrange(*POWER_LOSS_SILENCE_NS) if power_lost else 0
        self.outgoing.put(RESET, network.arrival_ns(self.outgoing.link) + silence_ns)
