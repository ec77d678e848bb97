"""The process of a console: a socket on the loopback interface, uvicorn, and one poller.

The socket is bound before uvicorn starts. The printed address is therefore correct even for port 0,
and the error for a port in use names the address.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from tidelog.console.app import ConsoleApp, ConsoleSettings
from tidelog.console.poller import Poller, Publish
from tidelog.core.errors import ConfigError
from tidelog.runtime.blocking import BlockingClient

#: Maximum time in ms that the console waits for one broker, because a dead broker must not delay
#: the pages for long.
_PATIENCE_MS = 4_000


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; raise ConfigError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(f"the console cannot listen on {host}:{port}: {error.strerror}") from None
    return listener


def serve(
    settings: ConsoleSettings, listener: socket.socket, report: Callable[[str], None]
) -> None:
    """Serve the console until a signal ends it; `report` gets the console's address first."""

    def make_poller(publish: Publish) -> Poller:
        client = BlockingClient(settings.bootstrap, "tidelog-console", _PATIENCE_MS)
        return Poller(client, publish)

    console = ConsoleApp(settings, make_poller)
    config = uvicorn.Config(
        console.asgi(),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        lifespan="on",
        ws="none",
    )
    report(address_of(listener))
    _ConsoleServer(config, console.hub.end).run(sockets=[listener])


class _ConsoleServer(uvicorn.Server):
    """A server that ends live pages at the signal to stop, because uvicorn waits for their end."""

    def __init__(self, config: uvicorn.Config, end_pages: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_pages = end_pages

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the live pages, then the server."""
        self._end_pages()
        super().handle_exit(sig, frame)


def address_of(listener: socket.socket) -> str:
    """Return the address of a listening socket for a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
