"""The end of a connection as the kernel knows it, before the loop has come to it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.runtime.network import SocketStream


class Wire(asyncio.Transport):
    """The asyncio side of a stream, which the test closes."""

    def close(self) -> None:
        """The test closes the socket."""


class Connected:
    """A connection of loopback: its stream, and the socket at the other end."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            own = socket.create_connection(server.getsockname())
            self.other, _ = server.accept()
        handler: Any = SimpleNamespace(get_buffer=None, buffer_updated=None)
        nothing: Any = None
        self.stream = SocketStream(nothing, lambda _: handler)
        self.stream.connection_made(Wire({"socket": own, "peername": own.getpeername()}))
        self.own = own

    def reset(self) -> None:
        self.other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.other.close()


@pytest.fixture
def connected() -> Iterator[Connected]:
    made = Connected()
    yield made
    made.stream.close("")
    made.own.close()
    made.other.close()


def test_an_open_connection_has_not_ended(connected: Connected) -> None:
    connected.other.send(b"unread")
    assert not connected.stream.has_ended()


def test_a_closed_one_has_behind_what_is_not_read_yet(connected: Connected) -> None:
    connected.other.send(b"unread")
    connected.other.close()
    assert connected.stream.has_ended()


def test_a_reset_one_has(connected: Connected) -> None:
    connected.reset()
    assert connected.stream.has_ended()


def test_one_that_this_side_has_given_up_has(connected: Connected) -> None:
    connected.stream.close("given up")
    assert connected.stream.has_ended()
