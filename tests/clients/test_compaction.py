"""A compacted topic as clients see it: the last value of each key, where it was, and no keyless."""

from __future__ import annotations

import random
import time

import pytest
from confluent_kafka import KafkaError, Producer
from tests.clients import confluent
from tests.clients.conftest import MakeTopic
from tests.support.clients import kcat
from tests.support.clients.samples import Record

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 60.0
KEYS = 40
ROUNDS = 60


def rounds(first: int, count: int) -> list[Record]:
    """Every key once a round; every seventh key is deleted in its last one. The values do not
    compress: segments are to be rolled."""
    draw = random.Random(first)
    return [
        Record(
            b"key %d" % key,
            None if key % 7 == 0 and number == ROUNDS - 1 else draw.randbytes(60),
        )
        for number in range(first, first + count)
        for key in range(KEYS)
    ]


def last_of(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def compacted(bootstrap: str, topic: str, most: int) -> list[Record]:
    """What the topic holds once at most so many records are left."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = confluent.read(bootstrap, topic, 0)
        if len(found) <= most:
            return found
        assert time.monotonic() < deadline, f"{len(found)} records are still there"


def a_topic(make_topic: MakeTopic) -> str:
    return make_topic(
        cleanup_policy="compact",
        segment_bytes="30000",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="86400000",
    )


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_last_value_of_each_key_is_read_back(
    bootstrap: str, make_topic: MakeTopic, codec: str
) -> None:
    topic = a_topic(make_topic)
    sent: list[Record] = []
    for first in range(0, ROUNDS, 5):
        sent += confluent.write(bootstrap, topic, 0, codec, rounds(first, 5))
    found = compacted(bootstrap, topic, len(sent) // 3)
    assert last_of(found) == last_of(sent)
    assert {key for key, value in last_of(found).items() if value is None} == {
        b"key %d" % key for key in range(0, KEYS, 7)
    }


@kcat.needs_kcat
def test_another_leader_has_the_same_last_values(
    cluster: LocalCluster, make_topic: MakeTopic
) -> None:
    topic = a_topic(make_topic)
    sent: list[Record] = []
    for first in range(0, ROUNDS, 5):
        sent += confluent.write(cluster.bootstrap, topic, 0, "lz4", rounds(first, 5))
    compacted(cluster.bootstrap, topic, len(sent) // 3)
    with BlockingClient(cluster.bootstrap) as client:
        tp = TopicPartition(topic, 0)
        leader = client.metadata([topic]).topics[topic].partitions[0].leader
        end = client.list_offsets({tp: -1})[tp].offset
        cluster.kill(leader)
        try:
            more = confluent.write(cluster.bootstrap, topic, 0, "none", [Record(b"new", b"1")])
            assert client.list_offsets({tp: -1})[tp].offset == end + 1
            found = kcat.read(cluster.bootstrap, topic, 0)
            assert last_of(found) == last_of(sent + more)
        finally:
            cluster.start(leader)
            cluster.await_full_isrs()


def test_a_record_without_a_key_is_refused(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = a_topic(make_topic)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(topic, value=b"no key", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    (error,) = errors
    assert error is not None and error.code() == KafkaError.INVALID_RECORD
