"""The real network: reads by asyncio's BufferedProtocol, and sends that bypass asyncio.

Reads through BufferedProtocol cost as much as raw epoll. For big responses, `transport.write` costs
1.9 times a `sendmsg` on a duplicate of the descriptor, so no write goes through asyncio
(docs/adr/0054). A `SocketStream` carries bytes; `wire.transport` makes frames of them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial

from tidelog.core import limits
from tidelog.core.buffers import BufferPool
from tidelog.core.errors import ConnectionLost
from tidelog.core.ports import Buffer, ByteStream, FrameHandler, StreamHandler, Transport
from tidelog.core.receive_budget import ReceiveBudget
from tidelog.wire.frames import FrameReader
from tidelog.wire.transport import FrameTransport, OnFatal

#: Time in ms after `close` in which the peer may still take queued bytes.
_LINGER_MS = 1_000
_LISTEN_BACKLOG = 1024
#: Linux's `tcpi_state` of a connection that neither peer has closed.
_TCP_ESTABLISHED = 1


class SocketStream(asyncio.BufferedProtocol):
    """One TCP connection: a ByteStream for its owner, and a protocol for asyncio."""

    __slots__ = (
        "_handler", "_is_watched", "_linger", "_loop", "_open_handler", "_out", "_reason",
        "_transport", "buffer_updated", "get_buffer", "peer", "send", "sendmsg",
    )  # fmt: skip

    #: These attributes are methods of the handler, which asyncio calls, and methods of the socket,
    #: which the handler calls. As attributes, they save a call of a method of this class.
    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]
    buffer_updated: Callable[[int], None]  # type: ignore[assignment]
    send: Callable[[Buffer], int]
    sendmsg: Callable[[Sequence[Buffer]], int]

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        open_handler: Callable[[ByteStream], StreamHandler],
    ) -> None:
        """Create a stream; `open_handler` is called when the connection is established."""
        self._loop = loop
        self._open_handler = open_handler
        self._handler: StreamHandler | None = None
        self._transport: asyncio.Transport | None = None
        #: A duplicate of the descriptor, for sends; None once the stream is closed.
        self._out: socket.socket | None = None
        self._is_watched = False
        #: The timer that drops queued bytes some time after `close_reading`.
        self._linger: asyncio.TimerHandle | None = None
        self._reason = ""
        self.peer = "?"

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle asyncio's notice that the connection is established."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self.peer = f"{host}:{port}"
        out = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        out.setblocking(False)
        self._out = out
        self.send, self.sendmsg = out.send, out.sendmsg
        handler = self._open_handler(self)
        self._handler = handler
        self.get_buffer, self.buffer_updated = handler.get_buffer, handler.buffer_updated

    def eof_received(self) -> bool:
        """Handle asyncio's notice that the peer has closed; this side closes, too."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle asyncio's notice that the connection is gone, perhaps after our `close`."""
        handler, self._handler = self._handler, None
        if handler is not None:
            del self.get_buffer, self.buffer_updated  # breaks a reference cycle
            handler.stream_lost(self._reason or str(exc or "closed by the peer"))

    # ByteStream

    def has_ended(self) -> bool:
        """Ask the kernel whether the peer has ended; unread bytes do not hide the end."""
        if self._out is None:
            return True
        try:
            info = self._out.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        except OSError:
            return True
        return info[0] != _TCP_ESTABLISHED

    def watch_writable(self, callback: Callable[[], None]) -> None:
        """Call back whenever the kernel has room for bytes to send."""
        if self._out is not None:
            self._is_watched = True
            self._loop.add_writer(self._out.fileno(), callback)

    def unwatch_writable(self) -> None:
        """End the callbacks that `watch_writable` began."""
        if self._is_watched and self._out is not None:
            self._is_watched = False
            self._loop.remove_writer(self._out.fileno())

    def pause_reading(self) -> None:
        """Stop reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close_reading(self, reason: str, on_over: Callable[[], None]) -> None:
        """Close asyncio's descriptor; the descriptor for sends stays open for a moment."""
        self._reason = self._reason or reason
        self._linger = self._loop.call_later(_LINGER_MS / 1000, on_over)
        if self._transport is not None:
            self._transport.close()

    def close(self, reason: str) -> None:
        """Close both descriptors; the kernel still sends the bytes that it has accepted."""
        self._close_out(reason)
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close both descriptors of the connection at once."""
        self._close_out(reason)
        if self._transport is not None:
            self._transport.abort()

    def _close_out(self, reason: str) -> None:
        self._reason = self._reason or reason
        if self._linger is not None:
            self._linger.cancel()
        self.unwatch_writable()
        out, self._out = self._out, None
        if out is not None:
            out.close()


class SocketListener:
    """A listening socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        """The port of the listener."""
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()


class SocketNetwork:
    """TCP connections through the event loop of this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_fatal: OnFatal) -> None:
        self._loop = loop
        self._on_fatal = on_fatal
        self._pool = BufferPool(limits.RECEIVE_POOL_BYTES)
        self._opened: dict[FrameTransport, None] = {}

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
        """Listen on an address; raise OSError if the port is taken."""
        open_stream = partial(self._open, accept, max_frame_bytes, budget)
        server = await self._loop.create_server(
            lambda: SocketStream(self._loop, open_stream),
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
        """Connect; raise ConnectionLost if the peer rejects, or does not accept in time."""
        made: list[FrameTransport] = []

        def open_stream(stream: ByteStream) -> FrameTransport:
            made.append(self._open(open_handler, max_frame_bytes, None, stream))
            return made[0]

        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._loop.create_connection(
                    lambda: SocketStream(self._loop, open_stream), host, port
                )
        except TimeoutError as error:
            raise ConnectionLost(f"{host}:{port}: no connection in {timeout_ms} ms") from error
        except OSError as error:
            raise ConnectionLost(f"{host}:{port}: {error}") from error
        return made[0]

    def _open(
        self,
        open_handler: Callable[[Transport], FrameHandler],
        max_frame_bytes: int,
        budget: ReceiveBudget | None,
        stream: ByteStream,
    ) -> FrameTransport:
        """Return the frame transport of an established stream."""
        reader = FrameReader(max_frame_bytes, pool=self._pool)
        return FrameTransport(stream, open_handler, reader, self._on_fatal, budget, self._opened)
