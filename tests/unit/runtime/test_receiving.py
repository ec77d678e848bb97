"""A connection's reads and the budget for large requests agree, however the bytes are cut."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.broker.fakes import FakeClock

from tidelog.core.limits import MIB
from tidelog.core.ports import ByteStream, FrameHandler, Transport
from tidelog.core.receive_budget import SMALL_REQUEST_BYTES, ReceiveBudget
from tidelog.runtime.network import SocketStream
from tidelog.wire.frames import FrameReader
from tidelog.wire.transport import FrameTransport

PRODUCE = 0


class Socket(asyncio.Transport):
    """asyncio's side of a connection that nobody writes to."""

    def __init__(self, own: socket.socket) -> None:
        super().__init__({"peername": ("127.0.0.1", 9), "socket": own})
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Answering:
    """Answers each request as soon as it is whole, as a broker's connection does."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.sizes: list[int] = []

    def frames_received(self, frames: list[memoryview]) -> None:
        for frame in frames:
            self.sizes.append(len(frame))
            if len(frame) > SMALL_REQUEST_BYTES:
                self._transport.handled(len(frame), PRODUCE)

    def connection_lost(self, reason: str) -> None:
        """Nothing waits."""

    def send_queue_changed(self, sent_bytes: int) -> None:
        """Nothing was sent."""


class Receiver:
    """A connection that is given bytes."""

    def __init__(self, own: socket.socket) -> None:
        self.fatal: list[str] = []
        self.handlers: list[Answering] = []
        self.budget = ReceiveBudget(10 * MIB, 4 * MIB, FakeClock(), lambda line: None)
        loop: Any = None  # no answer leaves
        self._protocol = SocketStream(loop, self._with_frames)
        self._protocol.connection_made(Socket(own))

    def _with_frames(self, stream: ByteStream) -> FrameTransport:
        return FrameTransport(stream, self._opened, FrameReader(MIB), self._failed, self.budget)

    def _opened(self, transport: Transport) -> FrameHandler:
        handler = Answering(transport)
        self.handlers.append(handler)
        return handler

    def _failed(self, where: str, error: BaseException) -> None:
        self.fatal.append(f"{where}: {error!r}")

    def give(self, data: bytes) -> int:
        """One read of the socket; returns how many bytes it took."""
        buffer = self._protocol.get_buffer(-1)
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        self._protocol.buffer_updated(taken)
        return taken

    def give_all(self, data: bytes) -> None:
        """As many reads as it takes."""
        while data:
            data = data[self.give(data) :]

    def close(self) -> None:
        self._protocol.connection_lost(None)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with socket.socket() as own:
        made = Receiver(own)
        yield made
        made.close()


@pytest.mark.parametrize("first_bytes", [1, 3, 4, 5, 6, 7, 100])
@pytest.mark.parametrize("over_limit", [0, 1, 2, 3, 4, 5, 6])
def test_a_request_just_above_the_limit_is_counted_wherever_its_first_read_ends(
    receiver: Receiver, first_bytes: int, over_limit: int
) -> None:
    small = struct.pack(">i", 60_000) + bytes(60_000)
    receiver.give_all(small * 20)  # the buffer has room for what follows
    size = SMALL_REQUEST_BYTES + over_limit
    frame = struct.pack(">i", size) + bytes(size)
    assert receiver.give(frame[:first_bytes]) == first_bytes
    assert receiver.give(frame[first_bytes:]) == len(frame) - first_bytes
    assert receiver.fatal == []
    assert receiver.handlers[0].sizes == [60_000] * 20 + [size]
    assert receiver.budget.used_bytes == 0
