"""Frames over any byte stream: here one that takes and gives as many bytes as the test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.core.limits import KIB
from tidelog.core.ports import Buffer
from tidelog.wire.frames import FrameReader
from tidelog.wire.transport import FrameTransport


class FakeStream:
    """A ByteStream without a socket."""

    def __init__(self) -> None:
        self.peer = "fake:1"
        self.taken = bytearray()
        #: Bytes that it takes before it is full.
        self.room = 1 << 30
        self.writable: Callable[[], None] | None = None
        self.is_reading = True
        self.ended: list[str] = []

    def send(self, data: Buffer, /) -> int:
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        if not self.room:
            raise BlockingIOError
        data = b"".join(buffers)[: self.room]
        self.taken += data
        self.room -= len(data)
        return len(data)

    def watch_writable(self, callback: Callable[[], None]) -> None:
        assert self.writable is None, "watched twice"
        self.writable = callback

    def unwatch_writable(self) -> None:
        self.writable = None

    def has_ended(self) -> bool:
        return bool(self.ended)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close_reading(self, reason: str, on_over: Callable[[], None]) -> None:
        self.ended.append(f"reading: {reason}")

    def close(self, reason: str) -> None:
        self.ended.append(reason)

    def abort(self, reason: str) -> None:
        self.ended.append(f"abort: {reason}")


class Echo:
    """A FrameHandler that sends each frame back."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.frames: list[bytes] = []
        self.lost: list[str] = []

    def frames_received(self, frames: list[memoryview]) -> None:
        for each in frames:
            self.frames.append(bytes(each))
            self.transport.send([len(each).to_bytes(4, "big"), bytes(each)])

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def send_queue_changed(self, sent_bytes: int) -> None:
        """An echo does not wait for its queue."""


def opened() -> tuple[FakeStream, FrameTransport, Echo]:
    stream = FakeStream()
    handlers: list[Echo] = []

    def open_handler(transport: Any) -> Echo:
        handlers.append(Echo(transport))
        return handlers[0]

    def fatal(_: str, error: BaseException) -> None:
        raise error

    transport = FrameTransport(stream, open_handler, FrameReader(), fatal)
    return stream, transport, handlers[0]


def give(transport: FrameTransport, data: bytes, most: int) -> bytes:
    """Let the transport read once, `most` bytes at most; return what is left."""
    buffer = transport.get_buffer(-1)
    size = min(len(buffer), len(data), most)
    buffer[:size] = data[:size]
    transport.buffer_updated(size)
    return data[size:]


@given(
    st.lists(st.binary(max_size=6 * KIB), max_size=12),
    st.lists(st.tuples(st.integers(1, 9 * KIB), st.integers(0, 5 * KIB)), min_size=1, max_size=40),
)
@examples(100)
def test_frames_are_the_same_wherever_reads_and_sends_end(
    payloads: list[bytes], steps: list[tuple[int, int]]
) -> None:
    stream, transport, echo = opened()
    stream.room = 0
    sent = b"".join(len(each).to_bytes(4, "big") + each for each in payloads)
    data = sent
    for most, room in steps:
        if data:
            data = give(transport, data, most)
        stream.room = room
        if room and stream.writable is not None:
            stream.writable()
        assert transport.queued_bytes + len(stream.taken) == sum(
            4 + len(each) for each in echo.frames
        )
    while data:
        data = give(transport, data, len(data))
    stream.room = 1 << 30
    if stream.writable is not None:
        stream.writable()
    assert echo.frames == payloads
    assert bytes(stream.taken) == sent
    assert (transport.queued_bytes, transport.held_bytes, stream.writable) == (0, 0, None)


def test_a_close_lets_queued_bytes_leave_before_it_closes_the_stream() -> None:
    stream, transport, echo = opened()
    stream.room = 3
    transport.send([b"\0\0\0\2", b"hi"])
    transport.close("done")
    assert stream.ended == ["reading: done"]
    transport.stream_lost("done")
    assert echo.lost == ["done"]
    stream.room = 100
    assert stream.writable is not None
    stream.writable()
    assert bytes(stream.taken) == b"\0\0\0\2hi"
    assert len(stream.ended) == 2


def test_an_abort_drops_queued_bytes() -> None:
    stream, transport, echo = opened()
    stream.room = 3
    transport.send([b"\0\0\0\2", b"hi"])
    transport.abort("enough")
    assert stream.ended == ["abort: enough"]
    assert (transport.queued_bytes, len(stream.taken)) == (0, 3)
    transport.stream_lost("enough")
    assert echo.lost == ["enough"]
