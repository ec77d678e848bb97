"""An HTTP server on the event loop of its program, protected against harmful clients.

A client may send garbage, read slowly or never, or request too much. The server therefore limits
the number of connections, the size of requests, and the time of each step. If a route's function
fails, only its request fails. A long response is sent in pieces, and the connection ends if the
client does not take a piece in time. When all connections are in use, a new one replaces the
connection whose request has been awaited for the longest time: clients that are silent, or stop
within a request, keep no other client out.

A server on a loopback address refuses requests that name another host than the one on which it was
configured to listen. Otherwise a web page could read the server through a DNS name of its own that
resolves to the loopback address (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Iterable
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.runtime.admin.http_messages import (
    BadRequest,
    HttpRequest,
    HttpResponse,
    body_bytes,
    check_local_host,
    read_head,
)
from tidelog.runtime.admin.routes import Routes
from tidelog.runtime.logging import escape

_PIECE_BYTES: Final = 256 * 1024
_END_OF_HEAD: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of one server."""

    #: Maximum number of connections at the same time. A further connection gets 503 if all open
    #: connections have a request in progress.
    connections: int = 32
    head_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024
    #: Time for a request to arrive after its first byte, and for the client to take a piece of the
    #: response.
    step_ms: int = 10_000
    #: Time for which a connection may be silent before or between requests.
    idle_ms: int = 120_000
    #: Time within which a function must respond.
    respond_ms: int = 60_000


class HttpServer:
    """A server of routes on one address."""

    def __init__(
        self, routes: Routes, log: logging.Logger, limits: HttpLimits | None = None
    ) -> None:
        self.routes = routes
        self._log = log
        self._limits = limits or HttpLimits()
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: The tasks whose connections wait for a whole request, the longest waiting first.
        self._silent: dict[asyncio.Task[None], None] = {}
        self._is_loopback = False
        self._host = ""

    async def listen(self, host: str, port: int) -> None:
        """Listen, on a free port if `port` is 0; raise OSError for an unusable address."""
        self._server = await asyncio.start_server(
            self._accepted, host, port, limit=self._limits.head_bytes, reuse_address=True
        )
        bound = (each.getsockname()[0] for each in self._server.sockets)
        self._is_loopback = all(ip_address(each).is_loopback for each in bound)
        # Requests may name this host, because many machines resolve their own host name to a
        # loopback address.
        self._host = host

    @property
    def port(self) -> int:
        """The port on which the server listens; valid only after `listen`."""
        assert self._server is not None, "not listening"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._tasks)

    @property
    def silent_connections(self) -> int:
        """The number of open connections that wait for a whole request."""
        return len(self._silent)

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this method as a task"
        is_full = len(self._tasks) >= self._limits.connections
        if is_full and self._silent:
            longest = next(iter(self._silent))
            del self._silent[longest]
            longest.cancel()
            is_full = False
        self._tasks[task] = None
        # With this limit, `drain` waits until the kernel has the whole piece. With the usual limit
        # of 64 KiB, the end of a response would be lost when its connection is closed.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            if is_full:
                reason = f"{self._limits.connections} connections are open, which is the limit"
                await self._refuse(writer, BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, reason))
            else:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client is gone or too slow, so its connection is already lost
        except Exception as error:
            self._failed("a connection of the admin port", error)
        finally:
            del self._tasks[task]
            # Bytes that the client does not read must not stay in memory.
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to the requests of one connection, one after the other."""
        keeps_alive = True
        while keeps_alive:
            try:
                request = await self._read(reader)
                if request is None:
                    return
                keeps_alive = request.keeps_alive
                response = await self._respond(request)
            except BadRequest as bad:
                await self._refuse(writer, bad)
                return
            parts = () if request.method == "HEAD" else response.parts
            await self._write(writer, (response.head(keeps_alive), *parts))

    async def _read(self, reader: asyncio.StreamReader) -> HttpRequest | None:
        """Return the next request; None if the client has sent no further request."""
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this method as part of a task"
        self._silent[task] = None
        try:
            return await self._received(reader)
        finally:
            self._silent.pop(task, None)

    async def _received(self, reader: asyncio.StreamReader) -> HttpRequest | None:
        limits = self._limits
        try:
            async with asyncio.timeout(limits.idle_ms / 1000):
                first = await reader.read(1)
        except TimeoutError:
            return None
        if not first:
            return None
        try:
            async with asyncio.timeout(limits.step_ms / 1000):
                head = read_head(first + await reader.readuntil(_END_OF_HEAD))
                size_bytes = body_bytes(head, limits.body_bytes)
                body = await reader.readexactly(size_bytes) if size_bytes else b""
        except asyncio.LimitOverrunError as error:
            reason = f"the head is too long; at most {limits.head_bytes:,} bytes expected"
            raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason) from error
        except TimeoutError as error:
            reason = f"the request has not arrived within {limits.step_ms:,} ms"
            raise BadRequest(HTTPStatus.REQUEST_TIMEOUT, reason) from error
        if self._is_loopback:
            check_local_host(head, self._host)
        return HttpRequest(head.method, head.path, head.query, head.headers, body, head.keeps_alive)

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        respond = self.routes.find(request)
        try:
            async with asyncio.timeout(self._limits.respond_ms / 1000):
                return await respond(request)
        except BadRequest as bad:
            return HttpResponse.of_text(f"{bad.reason}\n", bad.status)
        except TimeoutError:
            reason = f"no response within {self._limits.respond_ms:,} ms\n"
            return HttpResponse.of_text(reason, HTTPStatus.GATEWAY_TIMEOUT)
        except Exception as error:
            self._failed(f"{request.method} {request.path[:200]}", error)
            return HttpResponse.of_text(
                "the broker failed to respond; its log has the reason\n",
                HTTPStatus.INTERNAL_SERVER_ERROR,
            )

    async def _refuse(self, writer: asyncio.StreamWriter, bad: BadRequest) -> None:
        response = HttpResponse.of_text(f"{bad.reason}\n", bad.status)
        with contextlib.suppress(OSError):
            await self._write(writer, (response.head(keeps_alive=False), *response.parts))
            writer.write_eof()

    async def _write(self, writer: asyncio.StreamWriter, parts: Iterable[bytes]) -> None:
        """Write a response in pieces; raise TimeoutError if a piece is not taken in time."""
        for part in parts:
            for begin in range(0, len(part), _PIECE_BYTES):
                writer.write(memoryview(part)[begin : begin + _PIECE_BYTES])
                async with asyncio.timeout(self._limits.step_ms / 1000):
                    await writer.drain()

    def _failed(self, what: str, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        self._log.error("%s failed: %s", escape(what), escape(text))
