"""Bytes to a broker without a client in between, and the kernel's view of its process."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog.local import LocalCluster
from tidelog.wire.codec import decode_response, encode_request

#: No answer takes longer, however busy the machine is.
PATIENCE_S = 20.0
MIB = 1024 * 1024


def request(api_key: int, version: int, message: object, correlation_id: int = 1) -> bytes:
    """A whole frame."""
    return b"".join(map(bytes, encode_request(api_key, version, correlation_id, "raw", message)))


def sized(body: bytes, size: int | None = None) -> bytes:
    """A frame of a body; `size` lies about it."""
    return struct.pack(">i", len(body) if size is None else size) + body


class RawConnection:
    """One connection to a broker of a cluster, the first if none is named."""

    def __init__(self, cluster: LocalCluster, broker_id: int = 1) -> None:
        place = cluster.places()[broker_id]
        self._socket = socket.create_connection(("127.0.0.1", place.port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send all of it; a broker that has closed meanwhile is no error."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def end(self) -> None:
        """Signal the end of the bytes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close without a goodbye (RST)."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def until_closed(self) -> bytes:
        """What the broker sends until it closes; fails when it does not."""
        received = b""
        try:
            while data := self._socket.recv(65536):
                received += data
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise AssertionError("the broker neither answers nor closes") from None
        return received

    def answer(self) -> memoryview:
        """The next frame, without its size."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return memoryview(self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            data = self._socket.recv(size - len(received))
            assert data, f"closed after {len(received)} of {size} bytes"
            received += data
        return received

    def ask(self, api_key: int, version: int, message: object, correlation_id: int = 1) -> Any:
        """A request and its answer."""
        self.send(request(api_key, version, message, correlation_id))
        answered, response = decode_response(api_key, version, self.answer())
        assert answered == correlation_id
        return response


def ask(cluster: LocalCluster, api_key: int, version: int, message: object) -> Any:
    """A request and its answer, on a connection of their own."""
    with RawConnection(cluster) as connection:
        return connection.ask(api_key, version, message)


def pid_of(cluster: LocalCluster) -> int:
    """The process of the first broker, which must run."""
    process = cluster.process(1)
    assert process is not None, cluster.places()[1].last_lines()
    return process.pid


def memory_bytes(cluster: LocalCluster) -> int:
    """Proportional set size of the first broker."""
    for line in Path(f"/proc/{pid_of(cluster)}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel tells no PSS")


def begin_peak(cluster: LocalCluster) -> None:
    """Measure the peak of the first broker's memory from here on."""
    Path(f"/proc/{pid_of(cluster)}/clear_refs").write_text("5")


def peak_bytes(cluster: LocalCluster) -> int:
    """The most memory (RSS) of the first broker since `begin_peak`."""
    status = Path(f"/proc/{pid_of(cluster)}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def descriptors(cluster: LocalCluster) -> int:
    """Open files and sockets of the first broker, but for segments: a log that is used for the
    first time opens one, and closes it when others are used more."""
    directory = f"/proc/{pid_of(cluster)}/fd"
    count = 0
    for name in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):
            count += not os.readlink(f"{directory}/{name}").endswith(".log")
    return count


def await_true(condition: Callable[[], bool], what: str) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.02)
