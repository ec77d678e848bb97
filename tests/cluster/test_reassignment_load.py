"""Reassignments under load: Kafka's system test of them, and 1,000 that are cancelled at once.

Kafka's `core/reassign_partitions_test` moves 20 partitions of three replicas among four brokers at
random, with min.insync.replicas 3 and 1,000 records a second. Brokers restart meanwhile or do not,
and logs begin at offset 0 or later. Moves end within a minute, and no acknowledged record is lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

import pytest
from tests.cluster.conftest import MakeCluster, eventually
from tests.support.cluster.values import read_values
from tests.support.cluster.writers import Writer, writing

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

TOPIC, PARTITIONS, REPLICAS, BROKERS = "moved", 20, 3, 4
RECORDS_PER_SECOND = 1_000
#: Records of each partition that are written before it moves, and how many of them are deleted.
WRITTEN_FIRST, DELETED = 40, 20
LIMIT_S = 60.0
ROUNDS = 5
MANY = 1_000
#: The throttled scenario: two replicas of these batches at this rate, which is a minute and more.
BATCHES, BATCH_BYTES, THROTTLE = 100, 800_000, 2_000_000
#: What a throttle lets pass at once at first: its windows, which are Kafka's.
WINDOWS_S = 11
Orders = Mapping[TopicPartition, tuple[int, ...]]


def shuffled(draw: random.Random) -> dict[TopicPartition, tuple[int, ...]]:
    """Other replicas for every partition, in any order."""
    brokers = range(1, BROKERS + 1)
    return {
        TopicPartition(TOPIC, number): tuple(draw.sample(brokers, REPLICAS))
        for number in range(PARTITIONS)
    }


def reassigned(cluster: LocalCluster, orders: Orders, *, has_restarts: bool) -> None:
    """Move every partition; brokers restart meanwhile, one after the other."""
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        begin = time.monotonic()
        asked = client.reassign(orders)
        assert {each.error for each in asked.values()} == {ErrorCode.NONE}
        for broker_id in cluster.broker_ids if has_restarts else ():
            cluster.restart(broker_id)
        left_s = LIMIT_S - (time.monotonic() - begin)
        eventually(lambda: client.list_reassignments() == {}, "the end of the moves", left_s)
        partitions = client.await_topic(TOPIC, REPLICAS).partitions
    assert {
        TopicPartition(TOPIC, number): tuple(partition.replicas)
        for number, partition in partitions.items()
    } == orders


def check_records(cluster: LocalCluster, writer: Writer, start: int) -> None:
    """Every acknowledged record is stored once, in order."""
    assert writer.refused == []
    written = list(range(writer.written))
    for partition in range(PARTITIONS):
        read = read_values(cluster.bootstrap, TopicPartition(TOPIC, partition))
        assert [int(value) for value in read] == written[partition::PARTITIONS][start:]


def moved_under_load(
    cluster: LocalCluster, rounds: int, seed: int, *, has_restarts: bool, start: int
) -> None:
    """The scenario, with the logs' start at this offset."""
    draw = random.Random(seed)
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        configs = {"min.insync.replicas": str(REPLICAS), "segment.ms": "5000"}
        client.create_topic(TOPIC, configs=configs, assignment={
            tp.partition: replicas for tp, replicas in shuffled(draw).items()
        })  # fmt: skip
        client.await_topic(TOPIC, REPLICAS)
        with writing(cluster.bootstrap, TOPIC, PARTITIONS, RECORDS_PER_SECOND) as writer:
            eventually(lambda: writer.written >= PARTITIONS * WRITTEN_FIRST, "the first records")
            if start:
                tps = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
                assert set(client.delete_records(dict.fromkeys(tps, start)).values()) == {start}
            for _ in range(rounds):
                reassigned(cluster, shuffled(draw), has_restarts=has_restarts)
    check_records(cluster, writer, start)


@pytest.mark.rule("R13", "V51", "V52")
def test_nothing_is_lost_while_partitions_move_and_brokers_restart(
    make_cluster: MakeCluster,
) -> None:
    moved_under_load(make_cluster(BROKERS), 1, 1, has_restarts=True, start=DELETED)


@pytest.mark.soak
@pytest.mark.rule("V51", "V52")
@pytest.mark.parametrize("start", [0, DELETED], ids=["from 0", "start moved"])
@pytest.mark.parametrize("has_restarts", [False, True], ids=["quiet", "restarts"])
def test_nothing_is_lost_however_often(
    make_cluster: MakeCluster, has_restarts: bool, start: int
) -> None:
    moved_under_load(make_cluster(BROKERS), ROUNDS, 2, has_restarts=has_restarts, start=start)


@pytest.mark.rule("R2", "R3", "R19")
def test_a_thousand_pending_moves_go_back_at_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        controller = client.metadata([]).controller_id
        first, second, hung = sorted(cluster.broker_ids, key=lambda each: each != controller)
        client.create_topic("many", assignment=dict.fromkeys(range(MANY), (first, second)))
        tps = [TopicPartition("many", number) for number in range(MANY)]

        def has_replicas(*replicas: int) -> bool:
            topic = client.metadata(["many"]).topics.get("many")
            found = [] if topic is None else list(topic.partitions.values())
            return len(found) == MANY and all(tuple(each.replicas) == replicas for each in found)

        eventually(lambda: has_replicas(first, second), "the topic")
        cluster.pause(hung)
        try:
            asked = client.reassign(dict.fromkeys(tps, (hung, first)))
            assert {each.error for each in asked.values()} == {ErrorCode.NONE}
            assert len(client.list_reassignments()) == MANY
            cancelled = client.reassign(dict.fromkeys(tps))
            assert {each.error for each in cancelled.values()} == {ErrorCode.NONE}
            eventually(lambda: has_replicas(first, second), "the original replicas")
        finally:
            cluster.resume(hung)
        eventually(lambda: client.list_reassignments() == {}, "the end of the moves")
        [directory] = client.describe_log_dirs(hung)
        left = [each for each in directory.replicas if each.tp.topic == "many"]
        assert left == []


@pytest.mark.soak
@pytest.mark.rule("R4", "R15")
def test_a_throttled_move_takes_as_long_as_its_throttle_says(make_cluster: MakeCluster) -> None:
    """Kafka's `core/throttling_test`, with a throttle that comes with the move."""
    cluster = make_cluster(BROKERS)
    tp = TopicPartition("slow", 0)
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        client.create_topic(tp.topic, assignment={0: (1, 2)})
        client.await_topic(tp.topic, 2)
        batch = build_batch([NewRecord(None, random.Random(1).randbytes(BATCH_BYTES), 1)])
        for _ in range(BATCHES):
            client.produce(tp, batch)
        implied_s = 2 * BATCHES * len(batch) / THROTTLE
        assert implied_s > LIMIT_S + WINDOWS_S
        begin = time.monotonic()
        assert client.reassign({tp: (3, 4)}, throttle=THROTTLE)[tp].message == ""
        eventually(lambda: client.list_reassignments() == {}, "its end", 1.2 * implied_s)
        took_s = time.monotonic() - begin
        # The rate is that of leader 1, which sends both copies.
        assert took_s > implied_s - WINDOWS_S
    assert len(list(read_values(cluster.bootstrap, tp))) == BATCHES
