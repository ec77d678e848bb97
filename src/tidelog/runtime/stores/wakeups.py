"""Wake-ups between the processes of a store: a Unix datagram socket for each session.

A byte says that a process committed, no more: the store has the change. Lost bytes cost time only,
because every process also looks by itself every 100 ms. Socket paths are limited to 108 bytes: they
are used through /proc/self/fd/<descriptor of the directory>, whatever its depth.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable

from tidelog.runtime.stores.leases import SESSIONS_DIRECTORY, wake_name

_DRAIN_BYTES = 16


class Wakeups:
    """The sockets of one process: it sends to all sessions, and receives for one at a time."""

    def __init__(self, directory: str) -> None:
        self._directory = os.open(
            os.path.join(directory, SESSIONS_DIRECTORY),
            os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
        )
        self._sender = self._socket()
        #: The socket of the session, None without one.
        self.receiver: socket.socket | None = None

    def receive_for(self, session_id: int) -> socket.socket:
        """Return the socket that becomes readable when a peer has committed."""
        self.stop_receiving()
        receiver = self._socket()
        with contextlib.suppress(FileNotFoundError):  # left by a process that died while opening
            os.unlink(self._path(session_id))
        receiver.bind(self._path(session_id))
        self.receiver = receiver
        return receiver

    def stop_receiving(self) -> None:
        """Close the socket of the session that is over."""
        if self.receiver is not None:
            self.receiver.close()
            self.receiver = None

    def drain(self) -> None:
        """Receive and drop all bytes that came."""
        receiver = self.receiver
        while receiver is not None:
            try:
                receiver.recv(_DRAIN_BYTES)
            except BlockingIOError:
                return

    def send(self, session_ids: Iterable[int]) -> None:
        """Wake sessions; a session that is gone, or has not read earlier bytes, needs none."""
        for session_id in session_ids:
            with contextlib.suppress(
                FileNotFoundError, ConnectionRefusedError, BlockingIOError, PermissionError
            ):
                self._sender.sendto(b"!", self._path(session_id))

    def close(self) -> None:
        """Close everything."""
        self.stop_receiving()
        self._sender.close()
        os.close(self._directory)

    def _path(self, session_id: int) -> str:
        return f"/proc/self/fd/{self._directory}/{wake_name(session_id)}"

    @staticmethod
    def _socket() -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        made.setblocking(False)
        return made
