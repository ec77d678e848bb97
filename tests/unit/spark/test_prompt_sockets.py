"""Acknowledgements at once: every TCP connection of the process, and nothing else."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.serializers import CloudPickleSerializer

from tidelog.spark import prompt_sockets
from tidelog.spark.options import parse_options
from tidelog.spark.prompt_sockets import acknowledge_at_once
from tidelog.spark.streaming.stream_reader import TidelogStreamReader

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK"
)


@pytest.fixture
def delaying() -> Iterator[socket.socket]:
    """A connection that delays its acknowledgements."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not is_prompt(accepted)
        client.sendall(b"x")
        yield accepted


def is_prompt(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


def test_connections_acknowledge_at_once(delaying: socket.socket) -> None:
    acknowledge_at_once()
    assert is_prompt(delaying)
    assert delaying.recv(1) == b"x", "it is open"


def test_other_files_and_sockets_stay_open(delaying: socket.socket, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    near, far = socket.socketpair(socket.AF_UNIX)
    try:
        with open(tmp_path / "file", "w", encoding="utf-8") as file:
            acknowledge_at_once()
            file.write("y")
        os.write(writing, b"z")
        near.sendall(b"u")
        assert (os.read(reading, 1), far.recv(1)) == (b"z", b"u")
    finally:
        near.close()
        far.close()
        os.close(reading)
        os.close(writing)


def test_a_restored_reader_has_acknowledged(delaying: socket.socket) -> None:
    options = parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    pickled: bytes = CloudPickleSerializer().dumps(TidelogStreamReader(options))  # type: ignore[no-untyped-call]  # has no types
    assert not is_prompt(delaying)
    pickle.loads(pickled)
    assert is_prompt(delaying)


def test_a_system_without_the_option_is_left_alone(
    delaying: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_sockets, "_OPEN_FILES", "/nowhere")
    acknowledge_at_once()
    monkeypatch.undo()
    assert not is_prompt(delaying)
