"""Memory of a broker whose clients do not read its responses, and the patience of the others.

Many connections fetch large records, many times each, and read nothing. Meanwhile another
connection requests metadata from the same broker, again and again: its slowest response takes at
least as long as the longest turn of the broker's loop.
"""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.rig import MIB, pss_bytes, spread, table
from bench.systems import Running, System, started
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.codec import encode_request
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.registry import FETCH, METADATA

_READERS = 200
#: Fetches that each of them sends at once.
_PIPELINED = 40
#: Three brokers lead eight each.
_PARTITIONS = 24
_BATCHES = 8
_BATCH_BYTES = 1000 * 1024
_FETCH_BYTES = 50 * MIB
_FETCH_VERSION = 11
_METADATA_VERSION = 4
_BROKER_ID = 1
_WATCHED_S = 10.0
_LIMIT_S = 60.0


def run(systems: Sequence[System], rounds: int) -> list[str]:
    """Return the table; raises OSError where a broker closes the connection that asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2048), hard), hard))
    rows: dict[str, list[list[float]]] = {}
    for _ in range(rounds):
        with started(systems) as running:
            for number, one in enumerate(running):
                for name, value in _measure(one).items():
                    rows.setdefault(name, [[] for _ in systems])[number].append(value)
    title = (
        f"{_READERS} connections that send {_PIPELINED} fetches of {_FETCH_BYTES // MIB} MiB each"
        f" to one broker and read nothing ({rounds} runs)"
    )
    aims = {"PSS with them, MiB": "< 300", "slowest response to another connection, ms": "< 100"}
    lines = [
        (name, *(spread(each, 1) for each in found), aims.get(name, ""))
        for name, found in rows.items()
    ]
    return [table(title, lines, ("", *(system.name for system in systems), "aim"))]


def _measure(running: Running) -> dict[str, float]:
    frames = _frame(FETCH, _FETCH_VERSION, _fetch(_fill(running))) * _PIPELINED
    pid = running.pid(_BROKER_ID)
    before = pss_bytes([pid])
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here
    with ExitStack() as stack:
        asking = stack.enter_context(_connect(running))
        for _ in range(_READERS):
            stack.enter_context(_connect(running)).sendall(frames)
        times = _response_times(asking)
        return {
            "PSS before, MiB": before / MIB,
            "PSS with them, MiB": pss_bytes([pid]) / MIB,
            "most resident memory, MiB": _peak_bytes(pid) / MIB,
            "median response to another connection, ms": sorted(times)[len(times) // 2] * 1000,
            "slowest response to another connection, ms": max(times) * 1000,
        }


def _fill(running: Running) -> list[int]:
    """Write more than a fetch returns; return the partitions that the broker leads."""
    value = bytes(_BATCH_BYTES)
    with BlockingClient(running.bootstrap) as client:
        client.create_topic("unread", _PARTITIONS, 1)
        client.await_topic("unread")
        topic = client.metadata(["unread"]).topics["unread"]
        led = [number for number, each in topic.partitions.items() if each.leader == _BROKER_ID]
        for number in led:
            for _ in range(_BATCHES):
                client.produce(
                    TopicPartition("unread", number), build_batch([NewRecord(None, value, 1)])
                )
    return led


def _fetch(partitions: Sequence[int]) -> FetchRequest:
    wanted = [FetchPartition(number, -1, 0) for number in partitions]
    for each in wanted:
        each.partition_max_bytes = _FETCH_BYTES
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        session_epoch=-1,
        topics=[FetchTopic(topic="unread", partitions=wanted)],
    )


def _frame(api_key: int, version: int, message: object) -> bytes:
    return b"".join(map(bytes, encode_request(api_key, version, 1, "bench", message)))


def _connect(running: Running) -> socket.socket:
    host, _, port = running.address(_BROKER_ID).rpartition(":")
    return socket.create_connection((host, int(port)), timeout=_LIMIT_S)


def _response_times(asking: socket.socket) -> list[float]:
    """Ask without a pause for some seconds; return how long each response took, in seconds."""
    frame = _frame(METADATA, _METADATA_VERSION, MetadataRequest(topics=[]))
    times = []
    end = time.monotonic() + _WATCHED_S
    while (began := time.monotonic()) < end:
        asking.sendall(frame)
        (size,) = struct.unpack(">i", _exactly(asking, 4))
        _exactly(asking, size)
        times.append(time.monotonic() - began)
        time.sleep(0.001)
    return times


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        data = connection.recv(size - len(received))
        if not data:
            raise ConnectionError("the broker closed the connection that asks for metadata")
        received += data
    return bytes(received)


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
