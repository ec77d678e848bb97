"""A real broker under malformed, truncated, oversized and damaged input lives and stays small."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fuzz import hostile

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records import compression
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.codec import decode_response
from tidelog.wire.registry import PRODUCE

CONNECTIONS = 1_000
GROWTH_LIMIT_BYTES = 20 * 1024 * 1024
FUZZED = TopicPartition("fuzzed", 0)
WITNESS = TopicPartition("witness", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = str(tmp_path_factory.mktemp("fuzz") / "cluster")
    with LocalCluster(directory, 1, config={"auto.create.topics.enable": "false"}) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            for tp in (FUZZED, WITNESS):
                client.create_topic(tp.topic, 1, 1)
                client.await_topic(tp.topic)
        yield cluster


def resident_bytes(cluster: LocalCluster) -> int:
    process = cluster.process(1)
    assert process is not None, cluster.places()[1].last_lines()
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def connect(cluster: LocalCluster) -> socket.socket:
    place = cluster.places()[1]
    host, port = place.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=30)


def send_and_wait(cluster: LocalCluster, data: bytes) -> bytes:
    """Send everything, say that nothing follows, and read until the broker closes."""
    answer = b""
    # Reset: closed on the first bytes that made no sense.
    reset = contextlib.suppress(ConnectionResetError, BrokenPipeError)
    with connect(cluster) as connection, reset:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def serves(cluster: LocalCluster, value: bytes) -> bool:
    with BlockingClient(cluster.bootstrap, timeout_ms=10_000) as client:
        offset = client.produce(WITNESS, build_batch([NewRecord(None, value)]))
        return value in bytes(client.fetch(WITNESS, offset).records)


def test_a_thousand_hostile_connections_leave_the_broker_alive_and_small(
    cluster: LocalCluster,
) -> None:
    draw = random.Random(20_240_601)
    assert serves(cluster, b"before")
    before = resident_bytes(cluster)
    pid = cluster.process(1)
    for number in range(CONNECTIONS):
        kind = hostile.KINDS[number % len(hostile.KINDS)]
        frames = [kind(draw) for _ in range(draw.randint(1, 3))]
        send_and_wait(cluster, b"".join(frames))
    assert cluster.process(1) == pid, cluster.places()[1].last_lines()
    assert serves(cluster, b"after")
    growth = resident_bytes(cluster) - before
    assert growth < GROWTH_LIMIT_BYTES, f"grew by {growth} bytes"


def test_connections_that_stay_open_with_half_a_frame_are_harmless(cluster: LocalCluster) -> None:
    draw = random.Random(7)
    held = [connect(cluster) for _ in range(100)]
    try:
        for connection in held:
            connection.sendall(hostile.half_a_frame(draw))
        assert serves(cluster, b"meanwhile")
    finally:
        for connection in held:
            connection.close()


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1])
def test_an_impossible_frame_size_closes_the_connection(cluster: LocalCluster, size: int) -> None:
    before = resident_bytes(cluster)
    with connect(cluster) as connection:
        connection.sendall(struct.pack(">i", size) + bytes(100))
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert resident_bytes(cluster) - before < GROWTH_LIMIT_BYTES


def good_batch(codec: int = compression.NONE) -> bytearray:
    return build_batch([NewRecord(b"k", b"v" * 100) for _ in range(3)], codec=codec)


def with_crc(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, BatchView(batch).computed_crc())
    return bytes(batch)


def wrong_crc() -> bytes:
    batch = good_batch()
    batch[-1] ^= 1
    return bytes(batch)


def changed(offset: int, form: str, value: int, codec: int = compression.NONE) -> bytes:
    batch = good_batch(codec)
    struct.pack_into(form, batch, offset, value)
    return with_crc(batch) if offset >= 21 else bytes(batch)


def bad_compression(codec: int) -> bytes:
    batch = good_batch(codec)
    batch[61:] = b"\xff" * (len(batch) - 61)
    return with_crc(batch)


def bomb() -> bytes:
    """A batch that decompresses to more than a broker takes."""
    batch = good_batch(compression.GZIP)
    squeezer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = squeezer.compress(bytes(120 * 1024 * 1024)) + squeezer.flush()
    whole = bytearray(batch[:61] + packed)
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    return with_crc(whole)


REFUSED = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
EXPECTED = {
    "unknown compression": (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,),
}
BATCHES = {
    "wrong CRC": wrong_crc(),
    "negative length": changed(8, ">i", -1),
    "huge length": changed(8, ">i", 2**31 - 1),
    "short length": changed(8, ">i", 10),
    "negative record count": changed(57, ">i", -1),
    "huge record count": changed(57, ">i", 2**31 - 1),
    "negative last offset delta": changed(23, ">i", -1),
    "unknown compression": changed(21, ">h", 7),
    "bad gzip": bad_compression(compression.GZIP),
    "bad snappy": bad_compression(compression.SNAPPY),
    "bad lz4": bad_compression(compression.LZ4),
    "bad zstd": bad_compression(compression.ZSTD),
    "decompression bomb": bomb(),
    "half a header": bytes(good_batch()[:40]),
    "half a batch": bytes(good_batch()[:-20]),
    "old magic": changed(16, ">b", 1),
    "nothing": b"",
}


@pytest.mark.parametrize("name", list(BATCHES))
def test_a_damaged_batch_is_refused_with_its_reason(cluster: LocalCluster, name: str) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        end = client.list_offsets({FUZZED: -1})[FUZZED].offset
        answer = send_and_wait(cluster, hostile.produce_request(BATCHES[name]))
        (size,) = struct.unpack_from(">i", answer)
        assert size == len(answer) - 4
        _, response = decode_response(PRODUCE, 9, memoryview(answer)[4:])
        (partition,) = response.responses[0].partition_responses
        error = ErrorCode(partition.error_code)
        assert error in EXPECTED.get(name, REFUSED), (error, partition.error_message)
        assert partition.error_message
        assert client.list_offsets({FUZZED: -1})[FUZZED].offset == end
