"""A connection that carries frames over any stream of bytes, without I/O of its own.

A `FrameTransport` is the `Transport` of a connection's owner, and the handler of its `ByteStream`.
Reads use a `FrameReader`, and a budget for large frames of accepted connections. A queue holds the
bytes that the stream has not taken. Sends during a read event are corked: they join the queue and
leave together. The stream may be a socket, a TLS session or a simulated connection, and may split
and merge the peer's bytes. Stream and transport call each other directly (`get_buffer`,
`buffer_updated`, `send`), so a request costs no extra call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tidelog.core import limits
from tidelog.core.ports import Buffer, ByteStream, FrameHandler, Transport
from tidelog.core.receive_budget import SMALL_REQUEST_BYTES, BudgetShare, ReceiveBudget
from tidelog.wire.frames import FrameError, FrameReader

#: A callback for a failed handler, with the name of the failed step and the error.
OnFatal = Callable[[str, BaseException], None]


class FrameTransport:
    """The `Transport` that splits one connection's byte stream into frames."""

    __slots__ = (
        "_corked", "_handler", "_head_sent_bytes", "_is_closing", "_is_ended", "_is_lost",
        "_is_watching", "_on_fatal", "_opened", "_paused", "_queue", "_reader", "_send_part",
        "_send_parts", "_share", "_stream", "get_buffer", "peer", "queued_bytes",
    )  # fmt: skip

    #: The method `get_buffer` of the `FrameReader`: it returns room for the stream's next bytes.
    get_buffer: Callable[[int], memoryview]

    def __init__(
        self,
        stream: ByteStream,
        open_handler: Callable[[Transport], FrameHandler],
        reader: FrameReader,
        on_fatal: OnFatal,
        budget: ReceiveBudget | None = None,
        opened: dict[FrameTransport, None] | None = None,
    ) -> None:
        """Create a transport, which `opened` lists while the transport is open."""
        self._stream = stream
        self._send_part = stream.send
        self._send_parts = stream.sendmsg
        self._reader = reader
        self.get_buffer = reader.get_buffer
        self._on_fatal = on_fatal
        self._opened = opened
        #: Whether the owner has paused reading; the memory budget for large frames may stop reads,
        #: too.
        self._paused = False
        self._queue: deque[memoryview] = deque()
        #: Number of sent bytes that wait until the stream takes them.
        self.queued_bytes = 0
        #: Number of bytes that the stream has taken of the first queued buffer.
        self._head_sent_bytes = 0
        self._corked = False
        #: Whether the stream will call `_flush` when it can take bytes again.
        self._is_watching = False
        self._is_closing = False
        #: Whether the stream has reported its end; queued bytes may still leave for a moment.
        self._is_lost = False
        #: Whether the stream is closed for sends as well as reads.
        self._is_ended = False
        self.peer = stream.peer
        self._share: BudgetShare | None = None
        if budget is not None:
            self._share = budget.share(self.peer, self._apply_reading, self.close)
        if opened is not None:
            opened[self] = None
        self._handler: FrameHandler | None = None
        self._handler = open_handler(self)

    # StreamHandler

    def buffer_updated(self, nbytes: int) -> None:
        """Handle new bytes in the buffer."""
        error = ""
        try:
            frames = self._reader.received(nbytes)
        except FrameError as failure:
            frames, error = failure.frames, str(failure)
        share = self._share
        # The memory budget counts received bytes only while a large frame is incomplete, or if this
        # read is large enough to hold a large frame.
        if share is not None and (share.wanted_bytes or nbytes >= SMALL_REQUEST_BYTES):
            share.received(nbytes)
            for frame in frames:
                if len(frame) > SMALL_REQUEST_BYTES:
                    share.completed(len(frame), int.from_bytes(frame[:2], "big"))
        if frames and self._handler is not None and not self._is_closing:
            self._corked = True
            try:
                self._handler.frames_received(frames)
            except Exception as failure:
                self._on_fatal(f"handling frames of {self.peer}", failure)
                error = f"internal error: {failure!r}"
            finally:
                self._corked = False
            if self._queue:
                self._send_queued()
        if error:
            self.close(error)
        elif (
            self._reader.needed_bytes > SMALL_REQUEST_BYTES
            and share is not None
            and not share.wanted_bytes
        ):
            self._reserve(share)

    def _reserve(self, share: BudgetShare) -> None:
        """Reserve memory budget for the rest of a large frame; without budget, stop reading."""
        pending = self._reader.pending_frame()
        if pending is None or self._is_closing:
            return
        size_bytes, key = pending
        if size_bytes > SMALL_REQUEST_BYTES and not share.reserve(size_bytes, key):
            self._apply_reading()

    def stream_lost(self, reason: str) -> None:
        """Handle the end of the stream's reading side, perhaps after a call of `close`."""
        handler = self._handler
        if not (self._is_closing and self._queue):
            self._end(reason)
            self._handler = None
        self._is_lost = True
        if self._share is not None:
            self._share.close()
            self._share = None
        if self._opened is not None:
            self._opened.pop(self, None)
        if handler is not None:
            handler.connection_lost(reason)

    # Transport

    def has_ended(self) -> bool:
        """Return whether the peer has ended the stream, even if unread bytes precede the end."""
        return self._stream.has_ended()

    @property
    def held_bytes(self) -> int:
        """Bytes of the queued buffers, including a half-sent buffer."""
        return self.queued_bytes + self._head_sent_bytes

    def send(self, parts: Sequence[Buffer]) -> None:
        """Queue bytes; send them at once unless a read event is under way."""
        if self._is_closing:
            return
        if not self._corked and not self._queue:
            self._send_now(parts)
            return
        self._enqueue(parts)

    def keep_frames(self) -> None:
        """Keep the frames of this read event valid after the event."""
        self._reader.keep()

    def shrink(self) -> None:
        """Continue with the smallest receive buffer, unless part of a frame has arrived."""
        self._reader.shrink()

    def handled(self, frame_bytes: int, api_key: int) -> None:
        """Release the memory budget of a frame that the connection's owner has handled."""
        if self._share is not None:
            self._share.handled(frame_bytes, api_key)

    def pause_reading(self) -> None:
        """Stop reading."""
        self._paused = True
        self._apply_reading()

    def resume_reading(self) -> None:
        """Resume reading if the memory budget for large frames has room."""
        self._paused = False
        self._apply_reading()

    def _apply_reading(self) -> None:
        if self._paused or (self._share is not None and self._share.is_waiting):
            self._stream.pause_reading()
        else:
            self._stream.resume_reading()

    def close(self, reason: str) -> None:
        """Close the connection; queued bytes may still leave for a moment."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._queue:
            self._stream.close_reading(reason, self._linger_over)
        else:
            self._end(reason)

    def abort(self, reason: str) -> None:
        """Close the connection and drop queued bytes."""
        self._is_closing = True
        self._end(reason, is_abort=True)

    # sending

    def _enqueue(self, parts: Sequence[Buffer]) -> None:
        for part in parts:
            view = memoryview(part)
            if view.nbytes:
                self._queue.append(view)
                self.queued_bytes += view.nbytes

    def _send_now(self, parts: Sequence[Buffer]) -> None:
        """Send at once in the common case: a short response that the stream takes whole."""
        if len(parts) == 1:
            part = parts[0]
            try:
                sent = self._send_part(part)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self.abort(str(error))
                return
            if sent == len(part):
                return
            self._enqueue((memoryview(part)[sent:],))
            self._head_sent_bytes = sent
            self._flush()
            return
        self._enqueue(parts)
        self._flush()

    def _send_queued(self) -> None:
        """Send the bytes queued in a read event: usually one response, sent in one piece."""
        queue = self._queue
        if len(queue) == 1 and not (self._is_watching or self._paused or self._is_closing):
            try:
                sent = self._send_part(queue[0])
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self.abort(str(error))
                return
            if sent == self.queued_bytes:
                queue.clear()
                self.queued_bytes = self._head_sent_bytes = 0
                if self._handler is not None:
                    self._handler.send_queue_changed(0)
                return
            if sent:
                queue[0] = queue[0][sent:]
                self.queued_bytes -= sent
                self._head_sent_bytes += sent
        self._flush(was_corked=True)

    def _flush(self, was_corked: bool = False) -> None:
        """Send queued bytes; if any remain, have the stream call back.

        `was_corked` says that a read event queued the bytes. The owner has then counted them as
        queued, and must get a notice that the queue has changed.
        """
        if self._is_ended:
            return
        queue = self._queue
        queued_bytes = self.queued_bytes
        while queue:
            parts = [queue[index] for index in range(min(len(queue), limits.MAX_IOVECS))]
            try:
                sent = self._send_parts(parts)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self.abort(str(error))
                return
            self.queued_bytes -= sent
            while sent:
                head = queue[0]
                if sent < head.nbytes:
                    queue[0] = head[sent:]
                    self._head_sent_bytes += sent
                    break
                sent -= head.nbytes
                self._head_sent_bytes = 0
                queue.popleft()
        was_watching = self._is_watching
        if queue:
            if not was_watching:
                self._is_watching = True
                self._stream.watch_writable(self._flush)
        else:
            if was_watching:
                self._is_watching = False
                self._stream.unwatch_writable()
            if self._is_closing:
                self._end("all bytes have left")
        # The owner needs no notice of bytes that the stream took at once, unless the owner has
        # paused reading or knows of queued bytes.
        if (queue or was_watching or was_corked or self._paused) and self._handler is not None:
            is_news = was_watching or self._paused
            self._handler.send_queue_changed(queued_bytes - self.queued_bytes if is_news else 0)

    def _linger_over(self) -> None:
        """End a closed connection whose peer has not taken all queued bytes in time."""
        self._end("the peer did not take all bytes")

    def _end(self, reason: str, *, is_abort: bool = False) -> None:
        """Close the stream and drop the queued bytes; safe to repeat."""
        if self._is_ended:
            return
        self._is_ended = self._is_closing = True
        has_dropped = bool(self._queue)
        self._queue.clear()
        self.queued_bytes = self._head_sent_bytes = 0
        if is_abort:
            self._stream.abort(reason)
        else:
            self._stream.close(reason)
        handler = self._handler
        if self._is_lost:
            self._handler = None
        if handler is not None and (has_dropped or self._is_lost):
            handler.send_queue_changed(0)
