"""One blocking connection to a broker: whole frames out and in, with a deadline on each exchange.

Knows sizes and correlation ids, not messages. After any failure the connection is closed: a late
response must never be taken for that of a later request.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from typing import Final

from tidelog.client.steps import Address, NotSent
from tidelog.core.errors import ConnectionLost, ProtocolError, RequestTimeout
from tidelog.core.limits import MAX_RESPONSE_BYTES
from tidelog.core.ports import Buffer

_MIN_FRAME_BYTES: Final = 4


class FrameSocket:
    """A TCP connection that exchanges frames, one at a time."""

    __slots__ = ("_socket", "address")

    def __init__(self, address: Address, timeout_ms: int) -> None:
        """Connect; raises NotSent when refused, unknown, or not there in time."""
        self.address = address
        try:
            self._socket = socket.create_connection(address, timeout=max(timeout_ms, 1) / 1000)
        except TimeoutError as error:
            raise NotSent(f"{address} did not accept a connection in {timeout_ms} ms") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise NotSent(f"cannot connect to {address}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, parts: Sequence[Buffer], deadline: float) -> None:
        """Send a frame that carries its size. Raises ConnectionLost, RequestTimeout."""
        try:
            for part in parts:
                self._socket.settimeout(self._left(deadline))
                self._socket.sendall(part)
        except TimeoutError as error:
            self.close()
            raise RequestTimeout(f"{self.address} does not read its requests") from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"connection to {self.address} lost: {error}") from error

    def receive(self, deadline: float) -> memoryview:
        """Return the next frame without its size.

        Raises ConnectionLost, RequestTimeout, ProtocolError.
        """
        try:
            size = int.from_bytes(self._exactly(4, deadline), "big", signed=True)
            if not _MIN_FRAME_BYTES <= size <= MAX_RESPONSE_BYTES:
                raise ProtocolError(
                    f"{self.address} sent a frame of {size} bytes; expected"
                    f" {_MIN_FRAME_BYTES} to {MAX_RESPONSE_BYTES}: is it a Kafka broker?"
                )
            # The kernel zeroes it lazily: a false size costs no memory.
            return self._exactly(size, deadline)
        except TimeoutError as error:
            self.close()
            raise RequestTimeout(f"no answer from {self.address} in time") from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"connection to {self.address} lost: {error}") from error
        except (ConnectionLost, ProtocolError):
            self.close()
            raise

    def _exactly(self, size: int, deadline: float) -> memoryview:
        frame = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            self._socket.settimeout(self._left(deadline))
            received = self._socket.recv_into(frame[filled:])
            if received == 0:
                raise ConnectionLost(f"{self.address} closed the connection")
            filled += received
        return frame

    def _left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def non_blocking(self) -> socket.socket:
        """Return the socket, made non-blocking, for a caller that waits for several of them.

        `send` and `receive` must not be used any more.
        """
        self._socket.setblocking(False)
        return self._socket

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open and no unrequested byte has arrived."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the connection; safe to repeat."""
        with contextlib.suppress(OSError):
            self._socket.close()
