"""Frames over a simulated connection: the real transport, with traces and checks.

A `SimTransport` is the `FrameTransport` of real brokers on a `ConnectionEnd`. Calls of a
`SimTransport` count as calls of a port (`core.ports`), at which a planned crash may happen. Frames
that a handler receives are traced and shown to the run's `FrameWatch`. The received frames must be
the frames that the other side sent, in order. After a read event, the bytes of frames that the
handler does not keep are overwritten, because on a real connection the next bytes would overwrite
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidelog.core.ports import Buffer, FrameHandler, Transport
from tidelog.core.receive_budget import ReceiveBudget
from tidelog.sim.sim_connections import ConnectionEnd, ConnectionNetwork
from tidelog.wire.frames import SIZE_BYTES, FrameError, FrameReader
from tidelog.wire.transport import FrameTransport


class _WholeReader(FrameReader):
    """A frame reader whose buffer has room for all bytes that have arrived."""

    __slots__ = ("_on_error",)

    def __init__(self, max_frame_bytes: int, on_error: Callable[[str], None]) -> None:
        super().__init__(max_frame_bytes)
        self._on_error = on_error

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return a buffer of `sizehint` bytes; with -1, a buffer as large as a real
        connection's.
        """
        if sizehint < 0:
            return super().get_buffer(sizehint)
        self._replace(self.pending_bytes + sizehint)
        return self._view[self._end :]

    def received(self, nbytes: int) -> list[memoryview]:
        """Return the frames that are complete; report bytes that are not a valid frame."""
        try:
            return super().received(nbytes)
        except FrameError as error:
            self._on_error(str(error))
            raise


class _WatchedHandler:
    """The handler of a connection; each frame is traced and checked before the handler gets it."""

    __slots__ = ("_handler", "_transport")

    def __init__(self, transport: SimTransport, handler: FrameHandler) -> None:
        self._transport = transport
        self._handler = handler

    def frames_received(self, frames: list[memoryview]) -> None:
        """Trace the frames, and pass them to the handler."""
        self._transport.received(frames)
        self._handler.frames_received(frames)

    def connection_lost(self, reason: str) -> None:
        """Report the end of the connection to the handler."""
        self._handler.connection_lost(reason)

    def send_queue_changed(self, sent_bytes: int) -> None:
        """Report the sent bytes to the handler."""
        self._handler.send_queue_changed(sent_bytes)


def _frames_of(data: bytes) -> Iterator[bytes]:
    """Yield the frames of a send without their sizes."""
    position = 0
    while position < len(data):
        begin = position + SIZE_BYTES
        position = begin + int.from_bytes(data[position:begin], "big")
        yield data[begin:position]


def _raise(where: str, error: BaseException) -> None:
    """Let the error of a handler end the run."""
    raise error


class SimTransport(FrameTransport):
    """Transport of one connection of a node."""

    __slots__ = ("_end_point", "_frames", "_is_kept", "_max_frame_bytes", "_network")

    def __init__(
        self,
        network: ConnectionNetwork,
        end: ConnectionEnd,
        open_handler: Callable[[Transport], FrameHandler],
        max_frame_bytes: int,
        budget: ReceiveBudget | None = None,
    ) -> None:
        """Open the handler of a connection that is established."""
        self._network = network
        self._end_point = end
        #: Frames of the last read event that had any; `_are_kept` says whether the handler keeps
        #: them.
        self._frames: list[memoryview] = []
        self._is_kept = False

        def watched(transport: Transport) -> FrameHandler:
            return _WatchedHandler(self, open_handler(transport))

        self._max_frame_bytes = max_frame_bytes
        reader = _WholeReader(max_frame_bytes, self._no_frame)
        super().__init__(end, watched, reader, _raise, budget)

    def received(self, frames: list[memoryview]) -> None:
        """Check and trace frames that arrived, and show requests to the run's `FrameWatch`."""
        self._frames = frames
        self._is_kept = False
        self._check(frames)
        self._network.note_delivery(self._end_point, frames)
        if self._end_point.is_accepted and self._network.frame_watch is not None:
            self._network.frame_watch.received(self._end_point, frames)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes that have arrived; then overwrite frames that the handler does not keep."""
        super().buffer_updated(nbytes)
        if self._end_point.is_accepted and not self._is_kept:
            for frame in self._frames:
                frame[:] = b"\xff" * len(frame)
        self._frames = []

    def _check(self, frames: list[memoryview]) -> None:
        """Compare frames that arrived with the frames that the other side sent."""
        end = self._end_point
        for frame in frames:
            sent = end.incoming.sent_frames.popleft() if end.incoming.sent_frames else None
            if sent is None or frame != sent:
                due = "none" if sent is None else f"one of {len(sent)} bytes"
                self._network.violate(
                    f"{end.name} gets a frame of {len(frame)} bytes from {end.peer_name}, which"
                    f" sent {due} next"
                )

    def _no_frame(self, error: str) -> None:
        """Report a frame that the reader rejects as a violation, unless the other side sent a frame
        that is too large.
        """
        end = self._end_point
        if all(len(sent) <= self._max_frame_bytes for sent in end.incoming.sent_frames):
            self._network.violate(f"{end.name} reads {error} from {end.peer_name}")

    # Transport

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send bytes; the node may die at this call."""
        end = self._end_point
        end.process.port_call("network.send")
        if end.is_gone:
            return
        data = b"".join(parts)
        if end.is_accepted and self._network.frame_watch is not None:
            self._network.frame_watch.sent(end, data)
        end.outgoing.sent_frames.extend(_frames_of(data))
        super().send(parts)

    def keep_frames(self) -> None:
        """Keep the frames of the current read event valid after the event."""
        self._end_point.process.check_alive()
        self._is_kept = True
        super().keep_frames()

    def handled(self, frame_bytes: int, api_key: int) -> None:
        """Release a frame from the receive budget, because it has been handled."""
        self._end_point.process.check_alive()
        super().handled(frame_bytes, api_key)

    def pause_reading(self) -> None:
        """Stop reading."""
        self._end_point.process.check_alive()
        super().pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._end_point.process.check_alive()
        super().resume_reading()

    def close(self, reason: str) -> None:
        """Close the connection; the node may die at this call."""
        self._end_point.process.port_call("network.close")
        super().close(reason)

    def abort(self, reason: str) -> None:
        """Reset the connection; the node may die at this call, and bytes under way are lost."""
        self._end_point.process.port_call("network.close")
        super().abort(reason)
