"""A log directory on a small disk fills up, with real processes: read-only, and healed (D14).

Broker 1 has its directory on a small tmpfs, which another program fills. It goes on to serve reads,
others take over what they can, it restarts on the full disk, and takes records again when there is
space. Needs root, to mount the disk.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cluster.conftest import eventually
from tests.support.cluster.numbered_producer import NumberedProducer
from tests.support.cluster.values import read_values, write_values

from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.errors import KafkaError as BrokerError
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster, PartitionStatus, layout
from tidelog.runtime.blocking import BlockingClient

TOPIC = "t"
PARTITIONS = 6
#: The broker whose disk is small.
SMALL = 1
DISK_MIB = 32
#: Room that is left: less than the reserve, which is a twentieth of this disk.
ROOM_BYTES = 512 << 10
#: A topic of the small disk's broker alone.
ALONE = TopicPartition("alone", 0)
CONFIG = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "250",
    "replica.high.watermark.checkpoint.interval.ms": "500",
}
ASSIGNMENT = {
    number: [1 + (number + shift) % 3 for shift in range(3)] for number in range(PARTITIONS)
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The data directory of one of three brokers that are laid out, on a disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    places = layout.create(str(tmp_path / "cluster"), 3, CONFIG, 1)
    data = Path(places[SMALL].directory) / "data"
    data.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(data)]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    yield data
    subprocess.run(["umount", "-l", str(data)], check=True)


@pytest.fixture
def cluster(disk: Path, tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(str(tmp_path / "cluster"), 3, config=CONFIG)
    try:
        made.up()
        with BlockingClient(made.bootstrap, timeout_ms=60_000) as client:
            client.create_topic(TOPIC, -1, -1, assignment=ASSIGNMENT)
            client.create_topic(
                ALONE.topic, -1, -1, {"min.insync.replicas": "1"}, assignment={0: [SMALL]}
            )
            client.await_topic(TOPIC, min_isr=3)
            client.await_topic(ALONE.topic)
        yield made
    finally:
        made.down(timeout_s=5.0)


def fill(data: Path) -> Path:
    """Leave little room on a disk; returns the file to remove for more."""
    filler = data / "filler"
    usage = os.statvfs(data)
    with suppress(OSError):
        filler.write_bytes(bytes(max(usage.f_bavail * usage.f_bsize - ROOM_BYTES, 0)))
    return filler


def partitions(cluster: LocalCluster) -> list[PartitionStatus]:
    return [each for each in cluster.status().partitions if each.topic == TOPIC]


def refusal(cluster: LocalCluster) -> ErrorCode:
    """The error of an attempt to write to the topic of the small disk's broker."""
    try:
        write_values(cluster.bootstrap, ALONE, [b"more"], timeout_ms=500)
    except BrokerError as error:
        return error.code
    except TidelogError:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NONE


def log_of(cluster: LocalCluster) -> str:
    return (Path(cluster.places()[SMALL].directory) / "log/broker.log").read_text()


@pytest.mark.rule("D14")
def test_a_broker_serves_reads_on_a_full_disk_and_heals_when_there_is_space(
    cluster: LocalCluster, disk: Path
) -> None:
    producer = NumberedProducer(cluster.bootstrap, TOPIC, PARTITIONS, padding_bytes=500)
    producer.send(600)
    write_values(cluster.bootstrap, ALONE, [b"first"])

    filler = fill(disk)
    producer.send(600)
    eventually(lambda: refusal(cluster) is not ErrorCode.NONE, "writes are refused")
    producer.send(600)
    eventually(lambda: all(each.leader != SMALL for each in partitions(cluster)), "others lead")
    eventually(lambda: all(SMALL not in each.isr for each in partitions(cluster)), "ISRs shrink")
    with BlockingClient(cluster.bootstrap) as client:
        (shown,) = client.describe_log_dirs(SMALL)
    assert shown.is_read_only and not shown.error and shown.usable_bytes < 2 * ROOM_BYTES
    before = read_values(cluster.bootstrap, ALONE)
    assert before[0] == b"first", "its own topic is read"

    cluster.kill(SMALL)
    cluster.start(SMALL)
    eventually(lambda: read_values(cluster.bootstrap, ALONE) == before, "it serves reads again")
    assert refusal(cluster) is not ErrorCode.NONE, "the disk is still full after the restart"
    producer.send(600)

    filler.unlink()
    cluster.await_full_isrs()
    write_values(cluster.bootstrap, ALONE, [b"last"])
    producer.send(600)
    assert producer.failures == []
    for number, values in producer.acknowledged.items():
        assert read_values(cluster.bootstrap, TopicPartition(TOPIC, number)) == values
    assert read_values(cluster.bootstrap, ALONE)[-1] == b"last"
    text = log_of(cluster)
    assert f"log directory {disk} is full and read-only" in text
    assert f"log directory {disk} is writable again" in text
