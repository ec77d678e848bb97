"""Log directories that fail where one broker is Kafka's 3.9 and one is ours (D3 to D8, V68).

Each has two log directories. Under Kafka's controller one of ours fails, and one of our replicas is
damaged. Under our controller one of Kafka's fails. The steps build on each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.test_kafka_peers import (
    OURS,
    Peers,
    await_that,
    controller_of,
    produce,
    running_peers,
    values_of,
)
from tests.support.cluster.failing_disks import FileInPlace
from tests.support.cluster.values import read_values

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

KAFKAS = 1
TOPIC = "t"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(4)]
MORE = {
    "log.dirs": "{}/data-0,{}/data-1",
    # A failure is noticed by the next write of a checkpoint, if not before.
    "replica.high.watermark.checkpoint.interval.ms": "200",
}


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    path = tmp_path_factory.mktemp("log-dirs")
    with running_peers(path, kafkas=(KAFKAS,), more=MORE) as made:
        made.make_topic(TOPIC, *[(OURS, KAFKAS)] * len(PARTITIONS))
        for tp in PARTITIONS:
            produce(made.bootstrap, tp, values_of("first"), flush_every=20)
        yield made


def directory(peers: Peers, broker: int, number: int) -> Path:
    return peers.brokers[broker].data.with_name(f"data-{number}")


def held(peers: Peers, broker: int, number: int) -> list[TopicPartition]:
    found = directory(peers, broker, number)
    return [tp for tp in PARTITIONS if (found / f"{tp.topic}-{tp.partition}").is_dir()]


def fail_under(peers: Peers, broker: int, other: int) -> FileInPlace:
    """Fail the first directory of the broker that leads; the other leads what was there."""
    gone, kept = held(peers, broker, 0), held(peers, broker, 1)
    assert gone and kept
    disk = FileInPlace(directory(peers, broker, 0))
    disk.fail()
    for tp in PARTITIONS:
        produce(peers.bootstrap, tp, values_of("without it"))
    for tp in gone:
        peers.await_state(tp, other, [other], asked=(broker, other))
    for tp in kept:
        peers.await_state(tp, broker, [OURS, KAFKAS], asked=(broker, other))
    return disk


@pytest.mark.rule("D4", "D7", "D18")
def test_kafkas_controller_hears_of_our_failed_directory_and_of_its_return(peers: Peers) -> None:
    disk = fail_under(peers, OURS, KAFKAS)
    peers.brokers[OURS].kill()
    peers.end_session(OURS)
    disk.heal()
    peers.brokers[OURS].start()
    for tp in PARTITIONS:
        peers.await_in_sync(tp, (OURS, KAFKAS))
        assert read_values(peers.bootstrap, tp) == values_of("first") + values_of("without it")


@pytest.mark.rule("V68")
def test_our_damaged_replica_costs_that_replica_alone_under_kafkas_controller(peers: Peers) -> None:
    peers.elect_preferred(*PARTITIONS)
    for tp in PARTITIONS:
        peers.await_state(tp, OURS, [OURS, KAFKAS])
    tp = PARTITIONS[0]
    process = peers.brokers[OURS].pid()
    (path,) = directory(peers, OURS, 0).parent.glob(f"data-?/{tp.topic}-{tp.partition}/*.log")
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(len(whole) // 2)
        file.write(bytes([whole[len(whole) // 2] ^ 4]))
    with pytest.raises(KafkaError) as caught:
        read_values(peers.bootstrap, tp)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    peers.await_state(tp, KAFKAS, [OURS, KAFKAS])
    assert path.read_bytes() == whole
    assert read_values(peers.bootstrap, tp) == values_of("first") + values_of("without it")
    for other in PARTITIONS[1:]:
        peers.await_state(other, OURS, [OURS, KAFKAS])
    assert peers.brokers[OURS].pid() == process, "the broker has not ended"


@pytest.mark.rule("D4", "D8")
def test_our_controller_hears_of_kafkas_failed_directory_and_of_its_return(peers: Peers) -> None:
    peers.brokers[KAFKAS].stop()
    await_that(lambda: controller_of(peers.brokers[OURS]), lambda seen: seen == OURS, "controller")
    peers.brokers[KAFKAS].start()
    for tp in PARTITIONS:
        peers.await_in_sync(tp, (OURS, KAFKAS))
    with BlockingClient(peers.bootstrap, timeout_ms=30_000) as client:
        client.reassign(dict.fromkeys(PARTITIONS, (KAFKAS, OURS)))
    peers.elect_preferred(*PARTITIONS)
    for tp in PARTITIONS:
        peers.await_state(tp, KAFKAS, [OURS, KAFKAS])
    disk = fail_under(peers, KAFKAS, OURS)
    for tp in held(peers, KAFKAS, 1):
        seen = peers.state(tp, OURS)
        assert seen is not None and seen.offline == ()
    peers.brokers[KAFKAS].kill()
    peers.end_session(KAFKAS)
    disk.heal()
    peers.brokers[KAFKAS].start()
    for tp in PARTITIONS:
        peers.await_in_sync(tp, (OURS, KAFKAS))
        before = values_of("first") + values_of("without it")
        assert read_values(peers.bootstrap, tp) == before + values_of("without it")
