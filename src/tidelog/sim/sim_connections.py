"""Connections of the simulated network: two pipes, one per direction, first in first out.

Items of a pipe arrive after delays drawn from the seed; items due together arrive in one read
event. A cut direction stalls its pipes until the direction is healed or the sender's kernel gives
the connection up. A clogged direction accepts bytes and delivers them all at once when it is
unclogged. Neither cuts nor clogs reorder items. A vanished connection accepts bytes for ever, and
neither side learns of the loss before its kernel gives up. The death of a process resets its
connections and may lose items in flight. Frames are whole because senders send whole frames; bytes
are immutable copies.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.core import limits
from tidelog.core.ports import Buffer, FrameHandler
from tidelog.core.receive_budget import SMALL_REQUEST_BYTES, BudgetShare, ReceiveBudget
from tidelog.sim.loop import NS_PER_MS, NS_PER_S, Scheduler
from tidelog.sim.process import Process

#: Range of the time in ns after which a kernel gives up a connection with undelivered data.
GIVE_UP_NS = (8 * NS_PER_S, 30 * NS_PER_S)
#: Range of the time in ns before the peers of a host that lost power get a reset.
POWER_LOSS_SILENCE_NS = (NS_PER_MS, 5 * NS_PER_S)
#: Bytes that the kernels of both sides buffer before `queued_bytes` grows.
KERNEL_BUFFER_BYTES = 256 * limits.KIB

#: Items of a pipe other than bytes.
OPEN = object()
FIN = object()
RESET = object()


class FrameWatch(Protocol):
    """A follower of requests and responses on accepted connections."""

    def received(self, endpoint: ConnectionEnd, frames: Sequence[memoryview]) -> None:
        """Follow requests that arrived."""

    def sent(self, endpoint: ConnectionEnd, frame: bytes) -> None:
        """Follow a response that leaves; `frame` begins with its size."""


class ConnectionWatch(FrameWatch, Protocol):
    """A follower of accepted connections as a whole."""

    def opened(self, endpoint: ConnectionEnd) -> None:
        """Follow a connection that its listener is about to accept."""

    def lost(self, endpoint: ConnectionEnd, reason: str) -> None:
        """Follow the end of a connection on the side that accepted it."""


class ConnectionNetwork(Protocol):
    """The network as its connections use it."""

    #: The stream from which delays are drawn.
    draw: random.Random
    #: Watch of the frames of accepted connections.
    frame_watch: FrameWatch | None

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of the run."""

    def arrival_ns(self, link: Link) -> int:
        """Return when an item sent now arrives, apart from the order of its pipe."""

    def forget(self, endpoint: ConnectionEnd) -> None:
        """Remove a closed endpoint."""

    def note_opened(self, endpoint: ConnectionEnd) -> None:
        """Trace a connection that its listener is about to accept."""

    def note_delivery(self, endpoint: ConnectionEnd, chunks: list[bytes], frames: int) -> None:
        """Trace the delivery of frames to a handler."""

    def note_lost(self, endpoint: ConnectionEnd, reason: str) -> None:
        """Trace the end of a connection on one side."""


class Link:
    """One direction between two hosts."""

    __slots__ = ("clogged", "cut", "extra_ns", "spread_ns", "stalled")

    def __init__(self) -> None:
        self.cut = False
        #: Whether the TCP windows fill up, while no item is lost and no item arrives.
        self.clogged = False
        #: Constant part of a delay spike, added to each delay.
        self.extra_ns = 0
        #: Upper end of a delay spike's random part, which is uniform.
        self.spread_ns = 0
        self.stalled: list[Pipe] = []


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_has_vanished", "_is_scheduled", "_is_stalled", "_items", "_network",
        "in_flight_bytes", "last_due_ns", "link", "source", "target",
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
        self._items: deque[tuple[int, object]] = deque()
        self._is_scheduled = False
        self._is_stalled = False
        self._has_vanished = False

    def put(self, item: object, due_ns: int | None = None) -> None:
        """Send an item, which arrives after all items sent before."""
        network = self._network
        if due_ns is None:
            due_ns = network.arrival_ns(self.link)
        if isinstance(item, bytes):
            due_ns += len(item)  # a gigabyte a second
            self.in_flight_bytes += len(item)
        if self._has_vanished:
            return
        self.last_due_ns = max(self.last_due_ns, due_ns)
        self._items.append((self.last_due_ns, item))
        self._schedule()

    def vanish(self, *, is_given_up: bool = True) -> None:
        """Drop all items in flight and all later items, without notice to either side.

        With `is_given_up` the sender's kernel gives up in the end. The sender's kernel does not
        give up if the peer's kernel acknowledges bytes that no process reads.
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
    def queued_bytes(self) -> int:
        """Bytes beyond the kernels' buffers."""
        return max(0, self.in_flight_bytes - KERNEL_BUFFER_BYTES)

    def cut_short(self, draw: random.Random) -> None:
        """Keep only a random first part of the items in flight, because the sender is gone."""
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
        """Reset the connection if the direction is still cut, as the sender's kernel gives up."""
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
        if target.is_reading and target.admits(chunks):
            self.read(sum(map(len, chunks)))
        target.receive(chunks)

    def read(self, size_bytes: int) -> None:
        """Account for bytes that the target has read; the sender's queue shrinks."""
        queued_bytes = self.queued_bytes
        self.in_flight_bytes -= size_bytes
        source = self.source
        if queued_bytes and not source.is_gone:
            sent_bytes = queued_bytes - self.queued_bytes
            scheduler = self._network.scheduler
            scheduler.after(0, source.process, source.queue_changed, sent_bytes)


class ConnectionEnd:
    """One side of a connection; the `core.ports.Transport` of its node."""

    __slots__ = (
        "_corked", "_established", "_in_frames", "_kept", "_network", "_share", "_waiting", "asked",
        "handler", "incoming", "is_accepted", "is_gone", "is_reading",
        "max_frame_bytes", "name", "outgoing", "peer_name", "process",
    )  # fmt: skip

    outgoing: Pipe
    incoming: Pipe

    def __init__(
        self,
        network: ConnectionNetwork,
        process: Process,
        name: str,
        peer_name: str,
        max_frame_bytes: int,
        established: Callable[[ConnectionEnd], FrameHandler | None],
        budget: ReceiveBudget | None = None,
        *,
        is_accepted: bool = False,
    ) -> None:
        self._network = network
        #: Whether this side accepted the connection.
        self.is_accepted = is_accepted
        #: API keys of open requests by correlation id, on a watched connection.
        self.asked: dict[bytes, int] = {}
        self.process = process
        self.name = name
        self.peer_name = peer_name
        self.max_frame_bytes = max_frame_bytes
        self.handler: FrameHandler | None = None
        self.is_gone = False
        self.is_reading = True
        self._established = established
        self._in_frames = False
        #: Whether the frames of this read event stay in use after it.
        self._kept = False
        self._corked: list[bytes] = []
        self._waiting: list[bytes] = []
        self._share: BudgetShare | None = None
        if budget is not None:
            self._share = budget.share(peer_name, self._has_room, self.close)

    # Transport

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""
        return self.peer_name

    @property
    def queued_bytes(self) -> int:
        """Bytes that the kernel has not buffered."""
        return self.outgoing.queued_bytes

    def has_ended(self) -> bool:
        """Return whether the connection is gone, which its owner always knows already."""
        return self.is_gone

    @property
    def held_bytes(self) -> int:
        """Bytes that the kernel has not buffered; none after the end, which takes no time here."""
        return 0 if self.is_gone else self.outgoing.queued_bytes

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send copies of whole frames."""
        self.process.port_call("network.send")
        if self.is_gone:
            return
        frame = b"".join(parts)
        if self.is_accepted and self._network.frame_watch is not None:
            self._network.frame_watch.sent(self, frame)
        self._corked.append(frame)
        if not self._in_frames:
            self._uncork()

    def keep_frames(self) -> None:
        """Keep the frames of this read event valid after it."""
        self.process.check_alive()
        self._kept = True

    def handled(self, frame_bytes: int, api_key: int) -> None:
        """Release a frame that counts against the receive budget."""
        self.process.check_alive()
        if self._share is not None:
            self._share.handled(frame_bytes, api_key)

    def pause_reading(self) -> None:
        """Stop the delivery of frames, which wait in the kernels."""
        self.process.check_alive()
        self.is_reading = False

    def resume_reading(self) -> None:
        """Resume the delivery; waiting frames arrive in a separate event."""
        self.process.check_alive()
        if not self.is_reading and not self.is_gone:
            self.is_reading = True
            if self._waiting:
                self._network.scheduler.after(0, self.process, self._deliver_waiting)

    def close(self, reason: str) -> None:
        """Send all frames given to `send`, then close."""
        self.process.port_call("network.close")
        if not self.is_gone:
            self._uncork()
            self._gone(reason)
            self.outgoing.put(FIN)

    def abort(self, reason: str) -> None:
        """Reset the connection; frames in flight are lost."""
        self.process.port_call("network.close")
        if not self.is_gone:
            self._corked.clear()
            self._gone(reason)
            self.outgoing.cut_short(self._network.draw)
            self.outgoing.put(RESET)

    # The network's side

    def opened(self) -> None:
        """Establish the connection on this side."""
        if not self.is_gone:
            if self.is_accepted:
                self._network.note_opened(self)
            self.handler = self._established(self)
            if self.handler is None:
                self._gone("given up")
                self.outgoing.put(RESET)

    def receive(self, chunks: list[bytes]) -> None:
        """Pass whole frames to the handler, or keep the frames while the handler does not read."""
        share = self._share
        is_short = share is not None and share.is_waiting
        if not self.is_reading or self._waiting or is_short:
            self._waiting.extend(chunks)
            return
        frames: list[memoryview] = []
        buffers = [bytearray(chunk) for chunk in chunks]
        for buffer in buffers:
            if not self._split(buffer, frames):
                return
        if share is not None:
            for frame in frames:
                if len(frame) > SMALL_REQUEST_BYTES:
                    share.completed(len(frame), int.from_bytes(frame[:2], "big"))
        self._network.note_delivery(self, chunks, len(frames))
        handler = self.handler
        if handler is None:
            raise RuntimeError(f"{self.name}: bytes before the connection was open")
        if self.is_accepted and self._network.frame_watch is not None:
            self._network.frame_watch.received(self, frames)
        self._in_frames = True
        self._kept = False
        try:
            handler.frames_received(frames)
        finally:
            self._in_frames = False
        if self.is_accepted and not self._kept:
            for buffer in buffers:  # as if the next bytes had come into the same buffer
                buffer[:] = b"\xff" * len(buffer)
        if self._corked:
            self._uncork()

    def admits(self, chunks: list[bytes]) -> bool:
        """Return whether the receive budget has room for bytes that arrived.

        Without room the bytes wait for `_has_room`. Senders send whole frames, so a large frame
        reserves room at its arrival, together with the following frames.
        """
        share = self._share
        if share is None or share.wanted_bytes:
            return share is None or not share.is_waiting
        for chunk in chunks:
            position = 0
            while len(chunk) - position > SMALL_REQUEST_BYTES:
                size = int.from_bytes(chunk[position : position + 4], "big")
                if size > SMALL_REQUEST_BYTES:
                    key = int.from_bytes(chunk[position + 4 : position + 6], "big")
                    return share.reserve(size, key)
                position += 4 + size
        return True

    def _has_room(self) -> None:
        if self._waiting:
            self._network.scheduler.after(0, self.process, self._deliver_waiting)

    def _split(self, chunk: bytearray, frames: list[memoryview]) -> bool:
        view = memoryview(chunk)
        position = 0
        while position < len(chunk):
            size = int.from_bytes(view[position : position + 4], "big", signed=True)
            if size < 0 or size > self.max_frame_bytes:
                self._gone(f"a frame of {size} bytes; at most {self.max_frame_bytes} are taken")
                self.outgoing.put(RESET)
                return False
            end = position + 4 + size
            if end > len(chunk):
                raise RuntimeError(f"{self.peer_name} sent less than a whole frame")
            frames.append(view[position + 4 : end])
            position = end
        return True

    def _deliver_waiting(self) -> None:
        if self.is_reading and not self.is_gone and self._waiting and self.admits(self._waiting):
            chunks, self._waiting = self._waiting, []
            self.incoming.read(sum(map(len, chunks)))
            self.receive(chunks)

    def _uncork(self) -> None:
        corked, self._corked = self._corked, []
        if corked and not self.is_gone:
            for chunk in corked:
                self.outgoing.put(chunk)
            if self.outgoing.queued_bytes and self.handler is not None:
                self.handler.send_queue_changed(0)

    def peer_closed(self, reason: str) -> None:
        """Close this side after FIN or RST arrived."""
        if not self.is_gone:
            self.lost(reason)
            self.outgoing.put(RESET)

    def lost(self, reason: str) -> None:
        """Close this side after the connection broke."""
        if not self.is_gone:
            self._gone(reason)

    def _gone(self, reason: str) -> None:
        self.is_gone = True
        self._waiting.clear()
        if self._share is not None:
            self._share.close()
        self._network.forget(self)
        self._network.note_lost(self, reason)
        self._network.scheduler.after(0, self.process, self._report_loss, reason)

    def _report_loss(self, reason: str) -> None:
        if self.handler is not None:
            self.handler.connection_lost(reason)

    def queue_changed(self, sent_bytes: int) -> None:
        """Notify the handler that the kernel took queued bytes."""
        if self.handler is not None and not self.is_gone:
            self.handler.send_queue_changed(sent_bytes)

    def process_died(self, *, power_lost: bool) -> None:
        """Reset the connection; part of the bytes in flight may not arrive.

        The kernel of a killed process resets the connection at once. After a power loss, the peer
        learns of the reset later.
        """
        self.is_gone = True
        self._waiting.clear()
        network = self._network
        self.outgoing.cut_short(network.draw)
        silence_ns = network.draw.randrange(*POWER_LOSS_SILENCE_NS) if power_lost else 0
        self.outgoing.put(RESET, network.arrival_ns(self.outgoing.link) + silence_ns)
