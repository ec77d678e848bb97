"""What peers have not read counts as long as it is held, whatever ends in which order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.broker.connections import FakeBroker, frame
from tests.support.draws import examples

from tidelog.broker.server.connections import Connection
from tidelog.broker.server.requests import Pending
from tidelog.core.limits import KIB, MIB
from tidelog.core.response_budget import UNCOUNTED_BYTES
from tidelog.runtime.network import SocketStream
from tidelog.wire.frames import FrameReader
from tidelog.wire.messages.describe_cluster import DescribeClusterResponse
from tidelog.wire.transport import FrameTransport

MAX_BYTES = 8 * MIB
SIZES = (10, 2 * KIB, 6 * KIB, MIB)


class Wire(asyncio.Transport):
    """The asyncio side of a transport, which ends when the test says so."""

    def __init__(self, own: socket.socket) -> None:
        super().__init__({"socket": own, "peername": ("127.0.0.1", 1)})
        self.is_over = False

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        """Nothing is read by itself here."""

    def resume_reading(self) -> None:
        """Nothing is read by itself here."""

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True


class Loop:
    """The loop of one transport: it calls when the test says so."""

    def __init__(self) -> None:
        self.writer: Callable[[], None] | None = None
        self.timers: list[Callable[[], None]] = []

    def add_writer(self, _: int, writer: Callable[[], None]) -> None:
        self.writer = writer

    def remove_writer(self, _: int) -> None:
        self.writer = None

    def call_later(self, _: float, timer: Callable[[], None]) -> Loop:
        self.timers.append(timer)
        return self

    def cancel(self) -> None:
        """A stream that is closed cancels its timer."""
        self.timers.clear()


class Peer:
    """A client of the broker over a real socket with small buffers."""

    def __init__(self, broker: Any) -> None:
        own, self.other = socket.socketpair()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * KIB)
        self.other.setblocking(False)
        self.loop = Loop()
        loop: Any = self.loop
        self.wire = Wire(own)
        self.own = own
        self.is_lost = False
        self.requests = 0
        made: list[Connection] = []

        def opened(transport: Any) -> Connection:
            made.append(Connection(broker, transport))
            return made[0]

        def fatal(_: str, error: BaseException) -> None:
            raise error

        transports: list[FrameTransport] = []

        def with_frames(stream: Any) -> FrameTransport:
            transports.append(FrameTransport(stream, opened, FrameReader(16 * MIB), fatal))
            return transports[0]

        self.stream = SocketStream(loop, with_frames)
        self.stream.connection_made(self.wire)
        (self.transport,) = transports
        (self.connection,) = made

    def receives(self, count: int) -> None:
        """So many requests arrive at the broker in one read event."""
        data = b"".join(
            len(each).to_bytes(4, "big") + each
            for each in (bytes(frame(self.requests + number)) for number in range(count))
        )
        self.requests += count
        if not (self.wire.is_over or self.is_lost):
            self.stream.get_buffer(-1)[: len(data)] = data
            self.stream.buffer_updated(len(data))

    def reads(self) -> None:
        """The peer reads what the kernel has, which then takes more."""
        try:
            while self.other.recv(64 * KIB):
                pass
        except OSError:
            pass
        if self.loop.writer is not None:
            self.loop.writer()

    def ends(self) -> None:
        """asyncio reports the end."""
        if not self.is_lost:
            self.is_lost = True
            self.stream.connection_lost(None)

    def lingers(self) -> None:
        """The moment is over that queued bytes had."""
        timers, self.loop.timers = self.loop.timers, []
        for timer in timers:
            timer()

    @property
    def held_bytes(self) -> int:
        return self.connection._held_bytes + self.transport.held_bytes

    def done(self) -> None:
        self.stream.close("")
        self.own.close()
        self.other.close()


class Harness:
    """A broker whose handlers respond when the test says so."""

    def __init__(self) -> None:
        self.broker: Any = FakeBroker(self._handle)
        self.broker.responses = type(self.broker.responses)(
            MAX_BYTES, self.broker.clock, self.broker.lines.append
        )
        self.pending: list[Pending] = []
        #: The next request completes all earlier ones.
        self.completes = False
        self.peers = [Peer(self.broker) for _ in range(2)]

    def _handle(self, _: Any) -> Pending:
        if self.completes:
            self.completes = False
            while self.pending:
                self.respond(0, SIZES[1])
        self.pending.append(Pending())
        return self.pending[-1]

    def respond(self, number: int, size_bytes: int) -> None:
        if self.pending:
            pending = self.pending.pop(number % len(self.pending))
            pending.complete(DescribeClusterResponse(cluster_id="c" * size_bytes))

    def check(self) -> None:
        rooms = (self.broker.responses.clients, self.broker.responses.brokers)
        used = sum(room.used_bytes for room in rooms)
        shares = [peer.connection._share for peer in self.peers]
        assert used == sum(share.size_bytes for share in shares)
        for peer, share in zip(self.peers, shares, strict=True):
            if share.size_bytes != peer.held_bytes:
                assert share.size_bytes == 0 and peer.transport.held_bytes == 0
                assert peer.held_bytes <= UNCOUNTED_BYTES
        for room in rooms:
            assert all(share.size_bytes for share in room.holders)


PEERS = st.integers(0, 1)
OPERATIONS = st.one_of(
    st.tuples(st.just("receives"), PEERS, st.integers(1, 4)),
    st.tuples(st.just("respond"), st.integers(0, 7), st.integers(0, len(SIZES) - 1)),
    st.tuples(
        st.sampled_from(
            ("reads", "unblock", "close", "abort", "cut off", "ends", "lingers", "prove")
        ),
        PEERS,
        st.just(0),
    ),
)


@pytest.mark.rule("L2")
@given(st.lists(OPERATIONS, max_size=40))
@examples(300)
def test_the_sum_of_what_connections_hold_is_exact_in_any_order(
    operations: list[tuple[str, int, int]],
) -> None:
    harness = Harness()
    try:
        for name, number, amount in operations:
            peer = harness.peers[number % 2]
            match name:
                case "receives":
                    peer.receives(amount)
                case "unblock":
                    harness.completes = True
                    peer.receives(1)
                    harness.completes = False
                case "respond":
                    harness.respond(number, SIZES[amount])
                case "close":
                    peer.connection.close("the test closes it")
                case "abort":
                    peer.connection._share.abort("the test needs its room")
                case "cut off":
                    peer.other.close()
                    if peer.loop.writer is not None:
                        peer.loop.writer()
                case "prove":
                    peer.connection.prove_broker()
                case _:
                    getattr(peer, name)()
            harness.check()
        for peer in harness.peers:
            peer.connection.close("the test is over")
            peer.ends()
            harness.check()
            peer.lingers()
        assert harness.broker.responses.clients.used_bytes == 0
        assert harness.broker.responses.brokers.used_bytes == 0
    finally:
        for peer in harness.peers:
            peer.done()


def test_what_a_closed_connection_has_queued_counts_until_it_has_left() -> None:
    harness = Harness()
    peer = harness.peers[0]
    peer.receives(1)
    harness.respond(0, MIB)
    room = harness.broker.responses.clients
    held = room.used_bytes
    assert held > MIB, "the buffer counts whole, though the kernel has taken some of it"
    peer.connection.close("malformed request")
    peer.ends()
    assert room.used_bytes == held, "the kernel has not taken it"
    peer.reads()
    assert 0 < room.used_bytes <= held
    peer.lingers()
    assert room.used_bytes == 0
    for each in harness.peers:
        each.done()
