"""One of a broker's two log directories fails, with real processes (D1, D3 to D7, D18).

At run time under a leader and under a follower, and at the start, each in every way of
`support.cluster.failing_disks`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cluster.conftest import NewStore, eventually
from tests.support.cluster.failing_disks import UNMOUNTED, WAYS, FailingDisk
from tests.support.cluster.numbered_producer import NumberedProducer
from tests.support.cluster.values import read_values, write_values

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster, PartitionStatus
from tidelog.runtime.blocking import BlockingClient

TOPIC = "t"
PARTITIONS = 6
CONFIG = {
    "min.insync.replicas": "2",
    # A failure is noticed by the next write of a checkpoint, if not before.
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
}
BROKER = 1
#: The broker leads two of six partitions, or none.
ROLES = {
    "leader": {n: [1 + (n + shift) % 3 for shift in range(3)] for n in range(PARTITIONS)},
    "follower": {n: [2 + n % 2, BROKER, 3 - n % 2] for n in range(PARTITIONS)},
}
MakeBroken = Callable[[str, str], tuple[LocalCluster, FailingDisk]]


@pytest.fixture
def make(tmp_path: Path, new_store: NewStore) -> Iterator[MakeBroken]:
    """A cluster whose broker 1 has a log directory (the first) that fails in the named way."""
    ends = ExitStack()

    def make_one(way: str, role: str) -> tuple[LocalCluster, FailingDisk]:
        directory = str(tmp_path / "cluster")
        cluster = LocalCluster(directory, 3, config=CONFIG, log_dirs=2, store=new_store())
        ends.callback(cluster.down, timeout_s=5.0)
        cluster.up()
        cluster.stop(BROKER)
        disk: FailingDisk = WAYS[way](data(cluster, 0), tmp_path)
        ends.pop_all()
        ends.callback(disk.close)
        ends.callback(cluster.down, timeout_s=5.0)
        cluster.start(BROKER, environment=disk.environment)
        with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
            # By room, all would go to the larger disk.
            places = {TopicPartition(TOPIC, n): str(data(cluster, n % 2)) for n in ROLES[role]}
            client.move_replicas(BROKER, places)
            client.create_topic(TOPIC, -1, -1, assignment=ROLES[role])
            client.await_topic(TOPIC, min_isr=3)
        return cluster, disk

    with ends:
        yield make_one


def data(cluster: LocalCluster, number: int, broker: int = BROKER) -> Path:
    return Path(cluster.places()[broker].directory) / f"data-{number}"


def held(directory: Path) -> list[int]:
    """The partitions of the topic in a directory."""
    prefix = f"{TOPIC}-"
    return sorted(
        int(name.removeprefix(prefix))
        for name in os.listdir(directory)
        if name.removeprefix(prefix).isdigit() and name.startswith(prefix)
    )


def partitions(cluster: LocalCluster) -> dict[int, PartitionStatus]:
    return {each.partition: each for each in cluster.status().partitions if each.topic == TOPIC}


def assert_exactly_once(cluster: LocalCluster, producer: NumberedProducer) -> None:
    assert producer.failures == []
    for number, values in producer.acknowledged.items():
        assert read_values(cluster.bootstrap, TopicPartition(TOPIC, number)) == values


def assert_serves_alone(cluster: LocalCluster) -> None:
    """The broker's other directory serves a new topic, and no other broker is there."""
    others = [each for each in cluster.broker_ids if each != BROKER]
    tp = TopicPartition("alone", 0)
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        client.create_topic(
            tp.topic, -1, -1, {"min.insync.replicas": "1"}, assignment={0: [BROKER, *others]}
        )
        client.await_topic(tp.topic, min_isr=3)
    for other in others:
        cluster.kill(other)
    write_values(cluster.bootstrap, tp, [b"a", b"b"], 60_000)
    assert read_values(cluster.bootstrap, tp) == [b"a", b"b"]
    assert "alone-0" in os.listdir(data(cluster, 1))


@pytest.mark.rule("D4", "D18")
@pytest.mark.parametrize(
    ("way", "role"), [*((way, "leader") for way in WAYS if way != UNMOUNTED), ("EIO", "follower")]
)
def test_a_directory_fails_under_a_broker_that_goes_on(
    make: MakeBroken, way: str, role: str
) -> None:
    fails_at_run_time(make, way, role)


def fails_at_run_time(make: MakeBroken, way: str, role: str) -> None:
    cluster, disk = make(way, role)
    gone, kept = held(data(cluster, 0)), held(data(cluster, 1))
    assert gone and kept
    assert any(ROLES[role][number][0] == BROKER for number in gone) is (role == "leader")
    producer = NumberedProducer(cluster.bootstrap, TOPIC, PARTITIONS)
    producer.send(600)
    disk.fail()
    producer.send(600)
    eventually(
        lambda: all(
            BROKER not in each.isr and each.leader not in (BROKER, -1) and each.offline == (BROKER,)
            for number, each in partitions(cluster).items()
            if number in gone
        ),
        "all partitions of the failed directory are led elsewhere, and shown as offline",
    )
    producer.send(600)
    found = partitions(cluster)
    assert all(found[number].isr and BROKER in found[number].isr for number in kept)
    assert all(found[number].offline == () for number in kept)
    assert cluster.process(BROKER) is not None, "it is still online"
    assert_exactly_once(cluster, producer)
    assert_serves_alone(cluster)


@pytest.mark.rule("D5", "D18")
@pytest.mark.parametrize("way", ["a file in its place", UNMOUNTED])
def test_a_broker_starts_with_a_failed_directory_and_gets_its_replicas_back_with_a_good_one(
    make: MakeBroken, way: str
) -> None:
    has_failed_at_start(make, way)


@pytest.mark.soak
@pytest.mark.rule("D18")
@pytest.mark.parametrize("run", range(20))
@pytest.mark.parametrize("way", WAYS)
def test_however_often_a_directory_fails(make: MakeBroken, way: str, run: int) -> None:
    if run % 3 == 2 or way == UNMOUNTED:
        has_failed_at_start(make, way)
    else:
        fails_at_run_time(make, way, list(ROLES)[run % 3])


def has_failed_at_start(make: MakeBroken, way: str) -> None:
    cluster, disk = make(way, "leader")
    gone = held(data(cluster, 0))
    producer = NumberedProducer(cluster.bootstrap, TOPIC, PARTITIONS)
    producer.send(300)
    cluster.stop(BROKER)
    disk.fail()
    cluster.start(BROKER, environment=disk.environment)
    producer.send(300)
    eventually(
        lambda: all(
            (BROKER in each.isr, BROKER in each.offline)
            == ((False, True) if number in gone else (True, False))
            for number, each in partitions(cluster).items()
        ),
        "the replicas of the good directory are in sync, the others offline",
    )
    cluster.stop(BROKER)
    disk.heal()
    cluster.start(BROKER, environment=disk.environment)
    producer.send(300)
    eventually(
        lambda: all(
            len(each.isr) == 3 and each.offline == () for each in partitions(cluster).values()
        ),
        "all replicas are in sync",
    )
    assert_exactly_once(cluster, producer)


@pytest.mark.rule("D1")
def test_a_broker_ends_with_its_last_directory(make: MakeBroken) -> None:
    cluster, _ = make("a file in its place", "leader")
    producer = NumberedProducer(cluster.bootstrap, TOPIC, PARTITIONS)
    producer.send(60)
    for number in (0, 1):
        directory = data(cluster, number)
        directory.rename(directory.with_name(f"away-{number}"))
        directory.write_text("no directory\n")
    eventually(lambda: cluster.process(BROKER) is None, "the broker ends")
    producer.send(60)
    assert_exactly_once(cluster, producer)
    log = Path(cluster.places()[BROKER].directory, "log/broker.log").read_text()
    assert "log directory failed" in log


@pytest.mark.rule("D6")
def test_an_old_copy_of_a_replica_that_is_put_back_is_moved_aside(make: MakeBroken) -> None:
    cluster, _ = make("a file in its place", "leader")
    producer = NumberedProducer(cluster.bootstrap, TOPIC, PARTITIONS)
    producer.send(60)
    first, second = data(cluster, 0), data(cluster, 1)
    number = held(first)[0]
    cluster.stop(BROKER)
    shutil.copytree(first / f"{TOPIC}-{number}", second / f"{TOPIC}-{number}")
    for _ in range(2):
        # Both are alike at first: the one in the first directory stays, and grows.
        cluster.start(BROKER)
        producer.send(60)
        eventually(
            lambda: all(len(each.isr) == 3 for each in partitions(cluster).values()),
            "all replicas are in sync",
        )
        assert number in held(first) and number not in held(second)
        cluster.stop(BROKER)
        [aside] = [each for each in second.iterdir() if each.name.endswith("-stray")]
        aside.rename(second / f"{TOPIC}-{number}")
    assert_exactly_once(cluster, producer)
