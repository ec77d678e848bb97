"""A TCP proxy that a test breaks: it cuts connections, swallows one way, or accepts no client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

LOOPBACK = "127.0.0.1"


class CuttingProxy:
    """In front of one server, on the test's loop."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.port = 0
        #: Bytes to the server, or from it, are read and thrown away.
        self.swallows_requests = False
        self.swallows_answers = False
        self.connections = 0

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    async def listen(self) -> None:
        """Let connections in, always on the same port."""
        self._server = await asyncio.start_server(self._accepted, LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Cut all connections, and let none in."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> None:
        """End all connections at once."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self.swallows_requests = self.swallows_answers = False

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self._target)
        self._writers += [writer, server_writer]
        self._tasks += [
            asyncio.create_task(self._pump(reader, server_writer, is_request=True)),
            asyncio.create_task(self._pump(server_reader, writer, is_request=False)),
        ]

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_request: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                swallows = self.swallows_requests if is_request else self.swallows_answers
                if not swallows:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def proxied(port: int) -> AsyncIterator[CuttingProxy]:
    """A proxy that listens."""
    proxy = CuttingProxy(port)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
