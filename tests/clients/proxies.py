"""A TCP proxy on a port of its own, as a load balancer or a container's port mapping is."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Proxy:
    """Forwards connections to its port to a target; counts them. Threads end with it."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.accepted = 0
        self._start(self._accept)

    @property
    def port(self) -> int:
        """Where clients connect to."""
        return int(self._server.getsockname()[1])

    def close(self) -> None:
        """End the proxy and what goes through it."""
        for each in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    @staticmethod
    def _start(work: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                try:
                    broker = socket.create_connection(self._target)
                except OSError:  # the broker is down: the client sees its connection closed
                    client.close()
                    continue
                self.accepted += 1
                self._sockets += [client, broker]
                self._start(self._pump, client, broker)
                self._start(self._pump, broker, client)

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def connected_ports() -> set[int]:
    """Ports of this machine that this process has an open IPv4 connection to."""
    inodes = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f"/proc/self/fd/{name}").removeprefix("socket:[").rstrip("]"))
    found = set()
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes and fields[3] == "01":
            found.add(int(fields[2].rpartition(":")[2], 16))
    return found
