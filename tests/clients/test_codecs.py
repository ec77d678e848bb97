"""A leader takes compressed records only where Kafka's clients read them, and read the same.

Kafka's own classes decompress the same data as the checks of a leader, codec by codec.
"""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path

import pytest
from tests.support.clients.absent import Absent
from tests.support.clients.codec_cases import Case, cases
from tests.support.clients.jars import HERE, compiled, jars_of_kafka

from tidelog.records import compression

VERSION = "3.9.2"
PATIENCE_S = 120.0
LIMIT_BYTES = 1 << 24
#: What Kafka's clients read and a leader refuses, since no client writes it.
NARROWER = {
    # An empty batch without any zstd frame.
    "nothing-zstd",
    # Bytes behind the last frame or member, which Kafka ignores.
    "trailing-bytes-gzip",
    "trailing-few-gzip",
    "trailing-zeros-gzip",
    "trailing-bytes-lz4",
    "trailing-zeros-lz4",
    "trailing-one-snappy",
    # A flag of gzip's header that RFC 1952 reserves.
    "reserved-flag-gzip",
    # Two of xerial's streams in a row.
    "two-streams-snappy",
}
#: What the library reads and Kafka's clients do not.
FOREIGN = {
    "linked-lz4",
    "linked-with-sums-lz4",
    "skippable-first-lz4",
    "two-frames-lz4",
    "two-frames-with-sums-lz4",
    "two-sized-frames-lz4",
}


def ours(case: Case) -> tuple[int, int] | None:
    """Size and checksum of what a leader takes; None where it refuses the data."""
    try:
        data = compression.decompress(case.codec, case.data, LIMIT_BYTES)
        if compression.foreign_frames(case.codec, case.data, LIMIT_BYTES):
            return None
    except compression.CompressionError:
        return None
    return len(data), zlib.crc32(data)


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int] | None]:
    """What Kafka's clients read of each case, by name."""
    try:
        jars = jars_of_kafka(VERSION)
        classes = compiled(HERE / "CodecOracle.java", jars)
    except Absent as absent:
        pytest.skip(f"Kafka's compressions: {absent}")
    directory = tmp_path_factory.mktemp("codecs")
    for name, case in cases().items():
        (directory / f"{name}.{case.codec}").write_bytes(case.data)
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    ended = subprocess.run(
        [*java, "-cp", f"{classes}:{jars}/*", "CodecOracle", str(directory)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, tuple[int, int] | None] = {}
    for line in ended.stdout.splitlines():
        name, first, second = line.split("\t")
        found[Path(name).stem] = None if first == "error" else (int(first), int(second))
    return found


def test_a_leader_takes_what_kafkas_clients_read(
    kafkas: dict[str, tuple[int, int] | None],
) -> None:
    assert set(kafkas) == set(cases()) and len(kafkas) > 80
    taken = {name: ours(case) for name, case in cases().items()}
    refused = {name for name, read in taken.items() if read is None}
    assert {name for name in refused if kafkas[name]} - FOREIGN == NARROWER
    assert refused >= FOREIGN
    assert {
        name: (read, kafkas[name])
        for name, read in taken.items()
        if read is not None and read != kafkas[name]
    } == {}


def test_only_frames_of_lz4_are_read_otherwise_than_by_kafkas_clients(
    kafkas: dict[str, tuple[int, int] | None],
) -> None:
    foreign = set()
    for name, case in cases().items():
        try:
            data = compression.decompress(case.codec, case.data, LIMIT_BYTES)
        except compression.CompressionError:
            continue
        if (len(data), zlib.crc32(data)) != kafkas[name]:
            foreign.add(name)
    assert foreign == FOREIGN
