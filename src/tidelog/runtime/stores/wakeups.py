"""Wake-ups between the processes of an embedded store: a Unix datagram socket per session.

A received byte only says that a process committed; the receiver reads the change from the store.
Lost bytes only cost time, because every process also checks every 100 ms. Socket paths are limited
to 108 bytes, so they are used through /proc/self/fd/<descriptor of the directory>.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable

from tidelog.runtime.stores.leases import SESSIONS_DIRECTORY, wake_name

_DRAIN_BYTES = 16


class Wakeups:
    """The sockets of one process, which sends to all sessions and receives for one session."""

    def __init__(self, directory: str) -> None:
        self._directory = os.open(
            os.path.join(directory, SESSIONS_DIRECTORY),
            os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
        )
        self._sender = self._socket()
        #: The socket of this process's session; None while there is no session.
        self.receiver: socket.socket | None = None

    def receive_for(self, session_id: int) -> socket.socket:
        """Return the socket that becomes readable when a peer has committed."""
        self.stop_receiving()
        receiver = self._socket()
        # a process that died while it opened the store may have left the socket
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(session_id))
        receiver.bind(self._path(session_id))
        self.receiver = receiver
        return receiver

    def stop_receiving(self) -> None:
        """Close the socket of an ended session."""
        if self.receiver is not None:
            self.receiver.close()
            self.receiver = None

    def drain(self) -> None:
        """Receive and drop all waiting bytes."""
        receiver = self.receiver
        while receiver is not None:
            try:
                receiver.recv(_DRAIN_BYTES)
            except BlockingIOError:
                return

    def send(self, session_ids: Iterable[int]) -> None:
        """Wake sessions, except ended sessions and sessions with unread bytes."""
        for session_id in session_ids:
            with contextlib.suppress(
                FileNotFoundError, ConnectionRefusedError, BlockingIOError, PermissionError
            ):
                self._sender.sendto(b"!", self._path(session_id))

    def close(self) -> None:
        """Close all sockets and descriptors."""
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
