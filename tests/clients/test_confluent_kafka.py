"""confluent-kafka (librdkafka): what it sends comes back byte for byte, to it and to others."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, TopicMetadata
from tests.clients import confluent
from tests.clients.conftest import MakeTopic
from tests.support.clients import kcat
from tests.support.clients.samples import CODECS, Record, records, stored_codecs

from tidelog.core import types
from tidelog.local import LocalCluster

PATIENCE_S = 30.0


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_went(bootstrap: str, topic: str, codec: str) -> None:
    sent = confluent.write(bootstrap, topic, 0, codec, records())
    assert stored_codecs(bootstrap, types.TopicPartition(topic, 0)) == [codec]
    assert confluent.read(bootstrap, topic, 0) == sent


@kcat.needs_kcat
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_it_sent(bootstrap: str, topic: str, codec: str) -> None:
    sent = confluent.write(bootstrap, topic, 0, codec, records())
    assert kcat.read(bootstrap, topic, 0) == sent


def test_headers_hold_any_bytes(bootstrap: str, topic: str) -> None:
    headers = tuple((f"h{byte % 3}", bytes([byte, 0, byte])) for byte in range(256))
    sent = confluent.write(bootstrap, topic, 0, "none", [Record(b"k", b"v", headers)])
    assert [each.headers for each in confluent.read(bootstrap, topic, 0)] == [sent[0].headers]


def test_log_append_time_replaces_the_timestamps_of_records(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    sent = confluent.write(bootstrap, topic, 0, "lz4", records())
    after_ms = time.time_ns() // 1_000_000
    found = confluent.read(bootstrap, topic, 0)
    assert [each._replace(timestamp_ms=None) for each in found] == [
        each._replace(timestamp_ms=None) for each in sent
    ]
    assert all(before_ms <= (each.timestamp_ms or 0) <= after_ms for each in found)


def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    sent = [Record(None, b"%d" % number, (), 1000 + 10 * number) for number in range(100)]
    for half in (sent[:50], sent[50:]):
        confluent.write(bootstrap, topic, 0, "none", half)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    try:
        for timestamp_ms, offset in ((0, 0), (1000, 0), (1491, 50), (1990, 99), (1991, -1)):
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, 0, timestamp_ms)], timeout=PATIENCE_S
            )
            assert (found.offset, found.error) == (offset, None), timestamp_ms
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S) == (0, 100)
    finally:
        consumer.close()


def test_reading_begins_and_ends_where_it_is_told(bootstrap: str, topic: str) -> None:
    confluent.write(bootstrap, topic, 0, "zstd", [Record(None, b"%d" % n) for n in range(100)])
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 42)])
        first = consumer.poll(PATIENCE_S)
        assert first is not None
        assert (first.offset(), first.value()) == (42, b"42")
        consumer.seek(TopicPartition(topic, 0, 7))
        again = consumer.poll(PATIENCE_S)
        assert again is not None
        assert (again.offset(), again.value()) == (7, b"7")
    finally:
        consumer.close()


def refusal(future: Future[Any]) -> KafkaError:
    """The error of an admin call, which must fail."""
    with pytest.raises(KafkaException) as caught:
        future.result(PATIENCE_S)
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def await_leaders(admin: AdminClient, topic: str) -> TopicMetadata:
    """The answer about a topic once every broker may have heard of it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        if found.error is None and all(each.leader >= 0 for each in found.partitions.values()):
            return found
        assert time.monotonic() < deadline, found.error
        time.sleep(0.02)


def test_topics_are_administered(cluster: LocalCluster, bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic("made", num_partitions=3, replication_factor=2, config={"retention.ms": "1"})
    admin.create_topics([wanted])["made"].result(PATIENCE_S)

    described = await_leaders(admin, "made")
    assert {len(each.replicas) for each in described.partitions.values()} == {2}
    assert sorted(described.partitions) == [0, 1, 2]
    ends = admin.list_offsets({TopicPartition("made", 1): OffsetSpec.latest()})
    assert [end.result(PATIENCE_S).offset for end in ends.values()] == [0]
    nodes = admin.describe_cluster().result(PATIENCE_S)
    assert sorted(node.id for node in nodes.nodes) == list(cluster.broker_ids)
    assert nodes.controller.id in cluster.broker_ids

    again = refusal(admin.create_topics([wanted])["made"])
    assert again.code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics(["made"])["made"].result(PATIENCE_S)
    assert "made" not in admin.list_topics(timeout=PATIENCE_S).topics
    assert refusal(admin.delete_topics(["made"])["made"]).code() == (
        KafkaError.UNKNOWN_TOPIC_OR_PART
    )


def test_refused_topics_come_with_reasons(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wide = refusal(admin.create_topics([NewTopic("wide", 1, 4)])["wide"])
    assert wide.code() == KafkaError.INVALID_REPLICATION_FACTOR
    assert "replication factor 4" in wide.str()
    assert "3" in wide.str()
    odd = NewTopic("odd", 1, 1, config={"retention.ms": "soon"})
    refused = refusal(admin.create_topics([odd])["odd"])
    assert refused.code() == KafkaError.INVALID_CONFIG
    assert "retention.ms='soon' is not valid: an integer of at least -1" in refused.str()


@pytest.mark.parametrize("idempotent", [False, True])
def test_records_without_a_key_on_a_compacted_topic_fail_by_themselves(
    bootstrap: str, make_topic: MakeTopic, idempotent: bool
) -> None:
    """librdkafka fails them as INVALID_RECORD, and their batch's good ones as bystanders."""
    topic = make_topic(cleanup_policy="compact")
    outcome: dict[int, str] = {}
    options = {"linger.ms": 500, "enable.idempotence": idempotent, "acks": "all"}
    producer = Producer({"bootstrap.servers": bootstrap, **options})
    for number in range(100):
        producer.produce(
            topic,
            value=b"%d" % number,
            key=None if number % 10 == 3 else b"k%d" % number,
            partition=0,
            on_delivery=partial(
                lambda at, error, _: outcome.update({at: error.name() if error else ""}), number
            ),
        )
    assert producer.flush(PATIENCE_S) == 0
    bad = [number for number in range(100) if outcome[number] == "INVALID_RECORD"]
    assert bad == list(range(3, 100, 10)), outcome
    assert set(outcome.values()) == {"INVALID_RECORD", "_INVALID_DIFFERENT_RECORD"}
