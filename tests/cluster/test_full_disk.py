"""A full disk under librdkafka's idempotent producer while another leader is killed (V38).

A leader whose disk is full refuses one batch of several in flight. A batch behind it that is
answered OUT_OF_ORDER_SEQUENCE_NUMBER makes librdkafka bump its epoch for all partitions: what the
killed leader had replicated without an answer is stored again then. Needs root, to mount a disk
that is small enough to be filled.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.support.cluster.values import read_values

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster, PartitionStatus, layout
from tidelog.records.batch import iter_batches
from tidelog.runtime.blocking import BlockingClient

TOPIC = "t"
PARTITIONS = 6
#: The broker whose disk is small.
SMALL = 1
DISK_MIB = 32
#: Room that is left on it: the producer uses it up at full speed, with batches in flight.
ROOM_BYTES = 512 << 10
#: Every record is as long.
PADDING = bytes(1_000)
#: Records that are sent and not acknowledged, over all partitions.
WINDOW = 600
ENOUGH = 600
PATIENCE_S = 90.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The data directory of one of three brokers that are laid out, on a disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    places = layout.create(str(tmp_path / "cluster"), 3, {}, 1)
    data = Path(places[SMALL].directory) / "data"
    data.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(data)]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    yield data
    subprocess.run(["umount", "-l", str(data)], check=True)


@pytest.fixture
def cluster(small_disk: Path, tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(str(tmp_path / "cluster"))
    cluster.up()
    yield cluster
    cluster.down(timeout_s=5.0)


class NumberedProducer:
    """Sends 0, 1, 2, … round the partitions and notes what is acknowledged where."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.failures: list[KafkaError] = []
        #: How many records of each partition are acknowledged.
        self.acknowledged = [0] * PARTITIONS
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                # Small requests, so that the broker reads those in flight one after another.
                "linger.ms": 0,
                "batch.num.messages": 1,
                "retry.backoff.ms": 20,
            }
        )

    def send_until(self, holds: Callable[[], bool], what: str) -> None:
        """Send with many in flight, a record of each partition in turn, until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"{what}: {self.sent} sent, {self.acknowledged}"
            if self.sent - sum(self.acknowledged) < WINDOW:
                value, partition = b"%d " % self.sent + PADDING, self.sent % PARTITIONS
                self._producer.produce(
                    TOPIC, value, partition=partition, on_delivery=self._delivered
                )
                self.sent += 1
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)

    def finish(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self.failures

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[message.partition() or 0] += 1


def stored(cluster: LocalCluster, broker_id: int, partition: int) -> int:
    """Where a broker's replica ends, as its file says."""
    data = Path(cluster.places()[broker_id].directory) / "data"
    content = (data / f"{TOPIC}-{partition}" / f"{0:020d}.log").read_bytes()
    return max((batch.next_offset for batch in iter_batches(memoryview(content))), default=0)


def partitions(cluster: LocalCluster) -> list[PartitionStatus]:
    return [each for each in cluster.status().partitions if each.topic == TOPIC]


def fill(data: Path) -> Path:
    """Leave little room on a disk, or none; returns the file to remove for more."""
    filler = data / "filler"
    usage = os.statvfs(data)
    # The broker goes on writing, and may take the room first.
    with suppress(OSError):
        filler.write_bytes(bytes(max(usage.f_bavail * usage.f_bsize - ROOM_BYTES, 0)))
    return filler


def is_full(data: Path) -> bool:
    return os.statvfs(data).f_bavail == 0


def test_librdkafka_doubles_nothing_over_a_full_disk_and_a_killed_leader(
    cluster: LocalCluster, small_disk: Path
) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
        client.await_topic(TOPIC, min_isr=3)
    # The small disk's broker is the last choice for the partition whose leader is killed: what the
    # other follower has of it stays.
    doomed = next(each for each in partitions(cluster) if each.replicas[2] == SMALL)
    victim, heir, _ = doomed.replicas
    producer = NumberedProducer(cluster.bootstrap)
    producer.send_until(lambda: min(producer.acknowledged) >= ENOUGH // PARTITIONS, "a beginning")

    filler = fill(small_disk)
    at = doomed.partition
    producer.send_until(
        lambda: is_full(small_disk) and stored(cluster, heir, at) > stored(cluster, SMALL, at),
        "the other follower has what the full disk has not",
    )
    cluster.kill(victim)
    producer.send_until(
        lambda: all(each.leader not in (victim, -1) for each in partitions(cluster)),
        "leaders after the kill",
    )
    filler.unlink()
    before = list(producer.acknowledged)
    producer.send_until(
        lambda: all(
            now >= then + ENOUGH // PARTITIONS
            for now, then in zip(producer.acknowledged, before, strict=True)
        ),
        "all partitions go on",
    )
    producer.finish()
    cluster.start(victim)
    cluster.await_full_isrs()

    assert sum(producer.acknowledged) == producer.sent
    for partition in range(PARTITIONS):
        values = read_values(cluster.bootstrap, TopicPartition(TOPIC, partition))
        assert [int(value.split()[0]) for value in values] == list(
            range(partition, producer.sent, PARTITIONS)
        )
