"""The address of a cluster in environment variables that are set before the cluster starts.

Programs read their settings when they are imported, before any fixture. The ports are therefore
chosen when pytest starts, and reserved by sockets that do not listen. The brokers later listen on
the reserved ports.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from tidelog.local.ports import LOOPBACK, free_range


class Reservation:
    """Consecutive ports that are reserved for a cluster that starts later."""

    def __init__(self, brokers: int) -> None:
        """Reserve free ports; raise LocalClusterError if no free ports are found."""
        self._held: list[socket.socket] = []
        self.first_port = free_range(brokers)
        self._ports = range(self.first_port, self.first_port + brokers)
        for port in self._ports:
            # Brokers also set SO_REUSEADDR, so they can listen although this socket is bound.
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((LOOPBACK, port))
            self._held.append(held)

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of all brokers."""
        return bootstrap_at(self.first_port, len(self._ports))

    def close(self) -> None:
        """Release the ports, so that other programs can use them."""
        for held in self._held:
            held.close()


def bootstrap_at(first_port: int, brokers: int) -> str:
    """Return the text `host:port,...` of brokers on consecutive ports."""
    return ",".join(f"{LOOPBACK}:{first_port + number}" for number in range(brokers))


def put(names: Iterable[str], value: str) -> None:
    """Set environment variables of this process, and thus of the programs that it starts."""
    for name in names:
        os.environ[name] = value
