"""The real network: asyncio's BufferedProtocol in, tidelog's own non-blocking sends out.

Reading through BufferedProtocol costs as much as raw epoll. For big responses `transport.write`
costs 1.9 times a `sendmsg` on a duplicate of the descriptor. So nothing is ever written through
asyncio (docs/adr/0054). Sends during a read event are corked and leave together.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from tidelog.core import limits
from tidelog.core.buffers import BufferPool
from tidelog.core.errors import ConnectionLost
from tidelog.core.ports import Buffer, FrameHandler, Transport
from tidelog.core.receive_budget import SMALL_REQUEST_BYTES, BudgetShare, ReceiveBudget
from tidelog.wire.frames import FrameError, FrameReader

#: After `close`, how long the peer may take queued bytes.
_LINGER_MS = 1_000
_LISTEN_BACKLOG = 1024
#: Linux's `tcpi_state` of a connection that neither side has ended.
_TCP_ESTABLISHED = 1

OnFatal = Callable[[str, BaseException], None]


class SocketTransport(asyncio.BufferedProtocol):
    """One TCP connection: Transport to its owner, protocol to asyncio."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        open_handler: Callable[[Transport], FrameHandler],
        max_frame_bytes: int,
        on_fatal: OnFatal,
        pool: BufferPool | None = None,
        budget: ReceiveBudget | None = None,
        opened: dict[SocketTransport, None] | None = None,
    ) -> None:
        """`opened`: where the connection is listed while it is open."""
        self._loop = loop
        self._opened = opened
        self._budget = budget
        self._share: BudgetShare | None = None
        #: The owner of the connection pauses reading; the budget may also forbid it.
        self._paused = False
        self._open_handler = open_handler
        self._on_fatal = on_fatal
        self._reader = FrameReader(max_frame_bytes, pool=pool)
        self._handler: FrameHandler | None = None
        self._transport: asyncio.Transport | None = None
        self._out: socket.socket | None = None
        self._queue: deque[memoryview] = deque()
        #: Bytes that the kernel has not taken yet.
        self.queued_bytes = 0
        #: Bytes of the first queued buffer that the kernel has taken.
        self._head_sent_bytes = 0
        self._corked = False
        self._writer_armed = False
        self._close_reason = ""
        self._closing = False
        #: Whether asyncio has reported the end; queued bytes may still have a moment to leave.
        self._is_lost = False
        self.peer = "?"

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is established."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self.peer = f"{host}:{port}"
        self._out = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._out.setblocking(False)
        if self._budget is not None:
            self._share = self._budget.share(self.peer, self._apply_reading, self.close)
        if self._opened is not None:
            self._opened[self] = None
        self._handler = self._open_handler(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio: return the buffer for the next bytes."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: bytes have arrived."""
        error = ""
        try:
            frames = self._reader.received(nbytes)
        except FrameError as failure:
            frames, error = failure.frames, str(failure)
        share = self._share
        # A large frame is under way, or as many bytes arrived as the rest of a large frame has.
        if share is not None and (share.wanted_bytes or nbytes >= SMALL_REQUEST_BYTES):
            share.received(nbytes)
            for frame in frames:
                if len(frame) > SMALL_REQUEST_BYTES:
                    share.completed(len(frame), int.from_bytes(frame[:2], "big"))
        if frames and self._handler is not None and not self._closing:
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
        """Reserve budget for the rest of a frame; without budget nothing is read."""
        pending = self._reader.pending_frame()
        if pending is None or self._closing:
            return
        size_bytes, key = pending
        if size_bytes > SMALL_REQUEST_BYTES and not share.reserve(size_bytes, key):
            self._apply_reading()

    def eof_received(self) -> bool:
        """asyncio: the peer has closed its side; this side closes, too."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone, also after our `close`."""
        handler = self._handler
        if not (self._closing and self._queue):
            self._close_socket()
            self._handler = None
        self._is_lost = True
        if self._share is not None:
            self._share.close()
            self._share = None
        if self._opened is not None:
            self._opened.pop(self, None)
        if handler is not None:
            handler.connection_lost(self._close_reason or str(exc or "closed by the peer"))

    # Transport

    def has_ended(self) -> bool:
        """Ask the kernel; unread bytes do not hide the end behind them."""
        if self._out is None:
            return True
        try:
            info = self._out.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        except OSError:
            return True
        return info[0] != _TCP_ESTABLISHED

    @property
    def held_bytes(self) -> int:
        """Bytes of the queued buffers, those of a half-sent one included."""
        return self.queued_bytes + self._head_sent_bytes

    def send(self, parts: Sequence[Buffer]) -> None:
        """Queue bytes; they leave at once unless a read event is under way."""
        if self._out is None or self._closing:
            return
        if not self._corked and not self._queue:
            self._send_now(parts)
            return
        self._enqueue(parts)

    def keep_frames(self) -> None:
        """Keep the frames of this read event valid after it."""
        self._reader.keep()

    def shrink(self) -> None:
        """Continue with the smallest receive buffer, unless part of a frame has arrived."""
        self._reader.shrink()

    def handled(self, frame_bytes: int, api_key: int) -> None:
        """Release the budget of a frame that is held no more."""
        if self._share is not None:
            self._share.handled(frame_bytes, api_key)

    def pause_reading(self) -> None:
        """Stop reading."""
        self._paused = True
        self._apply_reading()

    def resume_reading(self) -> None:
        """Resume reading, where the budget has room."""
        self._paused = False
        self._apply_reading()

    def _apply_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._paused or (self._share is not None and self._share.is_waiting):
            transport.pause_reading()
        else:
            transport.resume_reading()

    def close(self, reason: str) -> None:
        """Close the connection; queued bytes have a moment to leave."""
        if self._closing:
            return
        self._closing = True
        self._close_reason = reason
        if self._queue:
            self._loop.call_later(_LINGER_MS / 1000, self._close_socket)
        else:
            self._close_socket()
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection and drop queued bytes."""
        self._closing = True
        self._close_reason = self._close_reason or reason
        self._close_socket()
        if self._transport is not None:
            self._transport.abort()

    # sending

    def _enqueue(self, parts: Sequence[Buffer]) -> None:
        for part in parts:
            view = memoryview(part)
            if view.nbytes:
                self._queue.append(view)
                self.queued_bytes += view.nbytes

    def _send_now(self, parts: Sequence[Buffer]) -> None:
        """Send at once in the common case: a short response that the kernel takes whole."""
        assert self._out is not None
        if len(parts) == 1:
            part = parts[0]
            try:
                sent = self._out.send(part)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._broken(error)
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
        """Send what a read event has queued: mostly one response that the kernel takes whole."""
        queue = self._queue
        out = self._out
        if (
            len(queue) == 1
            and out is not None
            and not (self._writer_armed or self._paused or self._closing)
        ):
            try:
                sent = out.send(queue[0])
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._broken(error)
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
        queue = self._queue
        out = self._out
        if out is None:
            return
        queued_bytes = self.queued_bytes
        while queue:
            parts = [queue[index] for index in range(min(len(queue), limits.MAX_IOVECS))]
            try:
                sent = out.sendmsg(parts)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._broken(error)
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
        was_queued = self._writer_armed
        if queue:
            if not was_queued:
                self._writer_armed = True
                self._loop.add_writer(out.fileno(), self._flush)
        else:
            if was_queued:
                self._writer_armed = False
                self._loop.remove_writer(out.fileno())
            if self._closing:
                self._close_socket()
        # What left at once is news for an owner only that paused for it, or that saw it corked.
        if (queue or was_queued or was_corked or self._paused) and self._handler is not None:
            is_news = was_queued or self._paused
            self._handler.send_queue_changed(queued_bytes - self.queued_bytes if is_news else 0)

    def _broken(self, error: OSError) -> None:
        self.abort(str(error))

    def _close_socket(self) -> None:
        out, self._out = self._out, None
        if out is None:
            return
        if self._writer_armed:
            self._writer_armed = False
            self._loop.remove_writer(out.fileno())
        has_dropped = bool(self._queue)
        self._queue.clear()
        self.queued_bytes = self._head_sent_bytes = 0
        out.close()
        handler = self._handler
        if self._is_lost:
            self._handler = None
        if handler is not None and (has_dropped or self._is_lost):
            handler.send_queue_changed(0)


class SocketListener:
    """A listening socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        """The port listened on."""
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()


class SocketNetwork:
    """TCP through the loop of this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_fatal: OnFatal) -> None:
        self._loop = loop
        self._on_fatal = on_fatal
        self._pool = BufferPool(limits.RECEIVE_POOL_BYTES)
        self._opened: dict[SocketTransport, None] = {}

    def release_buffers(self) -> None:
        """Release receive buffers that are kept for further frames."""
        for transport in self._opened:
            transport.shrink()
        self._pool.release()

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Transport], FrameHandler],
        max_frame_bytes: int,
        budget: ReceiveBudget | None = None,
    ) -> SocketListener:
        """Listen; raise OSError when the port is taken."""
        server = await self._loop.create_server(
            lambda: SocketTransport(
                self._loop,
                accept,
                max_frame_bytes,
                self._on_fatal,
                self._pool,
                budget,
                self._opened,
            ),
            host or None,
            port,
            backlog=_LISTEN_BACKLOG,
            reuse_address=True,
        )
        return SocketListener(server)

    async def connect(
        self,
        host: str,
        port: int,
        open_handler: Callable[[Transport], FrameHandler],
        timeout_ms: int,
        max_frame_bytes: int,
    ) -> Transport:
        """Connect; raise ConnectionLost when the peer rejects or does not accept in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, protocol = await self._loop.create_connection(
                    lambda: SocketTransport(
                        self._loop,
                        open_handler,
                        max_frame_bytes,
                        self._on_fatal,
                        self._pool,
                        opened=self._opened,
                    ),
                    host,
                    port,
                )
        except TimeoutError as error:
            raise ConnectionLost(f"{host}:{port}: no connection in {timeout_ms} ms") from error
        except OSError as error:
            raise ConnectionLost(f"{host}:{port}: {error}") from error
        return protocol
