"""Configurations as Kafka's own clients and tools set and read them, against three brokers.

Every key that Kafka 3.9 takes is taken; a topic's codec holds for what producers send with another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import KafkaAdminClient
from tests.support.cluster.raw_connections import ask

from tidelog.core.config_keys import ConfigType
from tidelog.core.errors import ErrorCode
from tidelog.local import LocalCluster
from tidelog.records.batch import iter_batches
from tidelog.records.compression import GZIP, IDS, NAMES
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.alter_configs import AlterableConfig as LegacyConfig
from tidelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
)
from tidelog.wire.messages.alter_configs import AlterConfigsResource as LegacyResource
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.registry import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

PATIENCE_S = 30.0
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
#: What the topic asks for, and how batches are stored then.
STORED = {"uncompressed": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}
VALUES = [b"value %d " % number * 20 for number in range(200)]
WITHOUT_EFFECT = {
    "preallocate": "true",
    "message.format.version": "2.8",
    "message.downconversion.enable": "false",
    "local.retention.ms": "-1",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster(str(tmp_path_factory.mktemp("configurations") / "cluster"), 3)
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(cluster: LocalCluster, admin: AdminClient, name: str, **configs: str) -> str:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, 3, config=settings)])[name].result(PATIENCE_S)
    with BlockingClient(cluster.bootstrap) as client:
        client.await_topic(name, min_isr=3)
    return name


def send(cluster: LocalCluster, topic: str, codec: str) -> None:
    failures: list[object] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 50}
    producer = Producer({**settings, "compression.type": codec})
    for value in VALUES:
        producer.produce(topic, value, b"key", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failures == [None] * len(VALUES)


def received(cluster: LocalCluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count, PATIENCE_S)
            assert messages and all(message.error() is None for message in messages)
            found += [message.value() or b"" for message in messages]
        return found
    finally:
        consumer.close()


def stored(cluster: LocalCluster, topic: str) -> list[list[tuple[str, int, int, int]]]:
    """Of each replica: codec, producer id, first sequence and last offset of its batches."""
    replicas = []
    for path in sorted(Path(cluster.directory).glob(f"**/{topic}-0/*.log")):
        batches = iter_batches(path.read_bytes())
        replicas.append(
            [
                (NAMES[it.compression], it.producer_id, it.base_sequence, it.last_offset)
                for it in batches
            ]
        )
    return replicas


@pytest.mark.parametrize("wanted", STORED)
def test_batches_are_stored_with_the_topics_codec_on_every_replica(
    cluster: LocalCluster, admin: AdminClient, wanted: str
) -> None:
    topic = create(cluster, admin, f"stored-{wanted}", compression_type=wanted)
    for codec in ("none", "gzip", "zstd"):
        send(cluster, topic, codec)
    assert received(cluster, topic, 3 * len(VALUES)) == VALUES * 3
    replicas = stored(cluster, topic)
    assert len(replicas) == 3 and replicas[0] == replicas[1] == replicas[2]
    assert {codec for codec, *_ in replicas[0]} == {STORED[wanted]}
    assert all(producer_id >= 0 and first >= 0 for _, producer_id, first, _ in replicas[0])
    assert replicas[0][-1][-1] == 3 * len(VALUES) - 1


def test_the_brokers_codec_holds_for_topics_that_set_none_while_it_runs(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    topic = create(cluster, admin, "inherits")
    send(cluster, topic, "gzip")
    change = AlterableConfig("compression.type", 0, "lz4")
    message = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "", [change])])
    [answer] = ask(cluster, INCREMENTAL_ALTER_CONFIGS, 1, message).responses
    assert answer.error_code == 0
    try:
        for _ in range(50):
            send(cluster, topic, "gzip")
            if stored(cluster, topic)[0][-1][0] == "lz4":
                break
        codecs = list(dict.fromkeys(codec for codec, *_ in stored(cluster, topic)[0]))
        assert codecs == [NAMES[GZIP], NAMES[IDS["lz4"]]]
    finally:
        change = AlterableConfig("compression.type", 1, None)
        message = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "", [change])])
        ask(cluster, INCREMENTAL_ALTER_CONFIGS, 1, message)


def test_keys_without_effect_are_taken_at_creation_and_named(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    new = NewTopic("inert", 1, 3, config=WITHOUT_EFFECT)
    admin.create_topics([new])["inert"].result(PATIENCE_S)
    [result] = describe(cluster, (TOPIC, "inert", sorted(WITHOUT_EFFECT)))
    assert {it.name: it.value for it in result.configs} == WITHOUT_EFFECT
    for it in result.configs:
        assert it.documentation is not None and "It has no effect here: " in it.documentation
    log = Path(cluster.places()[1].log_path)
    deadline = time.monotonic() + PATIENCE_S
    for key, value in WITHOUT_EFFECT.items():
        line = f"topic inert: {key}={value} has no effect here: "
        while line not in log.read_text(encoding="utf-8"):
            assert time.monotonic() < deadline, f"no line {line!r} in the log"
            time.sleep(0.02)


def test_kafka_python_alters_every_such_key_and_the_cleanup_policy_may_be_empty(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    topic = create(cluster, admin, "altered")
    settings = {**WITHOUT_EFFECT, "cleanup.policy": "", "compression.zstd.level": "-5"}
    python = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        python.alter_configs([PythonConfigResource("topic", topic, settings)])
    finally:
        python.close()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert {key: found[key].value for key in settings} == settings


def describe(
    cluster: LocalCluster, *resources: tuple[int, str, list[str] | None]
) -> list[DescribeConfigsResult]:
    message = DescribeConfigsRequest(
        [DescribeConfigsResource(*it) for it in resources],
        include_synonyms=True,
        include_documentation=True,
    )
    results: list[DescribeConfigsResult] = ask(cluster, DESCRIBE_CONFIGS, 4, message).results
    return results


def test_resources_and_keys_are_answered_in_the_order_asked_for(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    first = create(cluster, admin, "order-a")
    second = create(cluster, admin, "order-b")
    wanted = ["segment.ms", "cleanup.policy", "no.such.key", "retention.ms"]
    results = describe(
        cluster, (TOPIC, second, wanted), (GROUP, "g", None), (TOPIC, "nowhere", None),
        (TOPIC, first, []), (TOPIC, second, ["flush.ms"]), (TOPIC, second, wanted),
        (TOPIC, first, None),
    )  # fmt: skip
    assert [(it.resource_type, it.resource_name) for it in results] == [
        (TOPIC, second), (GROUP, "g"), (TOPIC, "nowhere"), (TOPIC, first), (TOPIC, second),
    ]  # fmt: skip
    assert [it.name for it in results[0].configs] == [
        "segment.ms", "cleanup.policy", "retention.ms",
    ]  # fmt: skip
    assert [it.error_code for it in results] == [
        0, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0,
    ]  # fmt: skip
    assert len(results[3].configs) == 38, "no keys asked for are all of them"
    assert [it.name for it in results[4].configs] == ["flush.ms"]
    assert len(results) == 5, "the same question is answered once"


@pytest.mark.parametrize("kind", [CLIENT_METRICS, GROUP, 77])
def test_other_resources_are_refused_as_by_kafka_with_zookeeper(
    cluster: LocalCluster, kind: int
) -> None:
    [result] = describe(cluster, (kind, "1", None))
    assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, [])
    changes = [AlterConfigsResource(kind, "1", [AlterableConfig("a", 0, "1")])]
    message = IncrementalAlterConfigsRequest(changes)
    [answer] = ask(cluster, INCREMENTAL_ALTER_CONFIGS, 1, message).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_without_a_name_has_no_configuration_to_alter(cluster: LocalCluster) -> None:
    message = AlterConfigsRequest([LegacyResource(TOPIC, "", [LegacyConfig("flush.ms", "1")])])
    [answer] = ask(cluster, ALTER_CONFIGS, 2, message).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_brokers_take_keys_that_they_do_not_know_and_throttles(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    keys = {"leader.replication.throttled.rate": "1000", "my.own.key": "secret"}
    changes = [AlterableConfig(key, 0, value) for key, value in keys.items()]
    message = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "1", changes)])
    [answer] = ask(cluster, INCREMENTAL_ALTER_CONFIGS, 1, message).responses
    assert (answer.error_code, answer.error_message) == (0, None)
    [result] = describe(cluster, (BROKER, "1", list(keys)))
    throttle, own = result.configs
    assert (throttle.value, throttle.config_type) == ("1000", ConfigType.LONG)
    assert (own.value, own.is_sensitive, own.config_type) == (None, True, ConfigType.UNKNOWN)
    assert [(it.name, it.source) for it in own.synonyms] == [("my.own.key", 2)]


@pytest.mark.parametrize(
    ("key", "value"),
    [("leader.replication.throttled.rate", "-1"), ("log.dirs", "/x"), ("message.max.bytes", "big")],
)
def test_brokers_refuse_with_kafkas_code(cluster: LocalCluster, key: str, value: str) -> None:
    changes = [AlterableConfig(key, 0, value)]
    message = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "1", changes)])
    [answer] = ask(cluster, INCREMENTAL_ALTER_CONFIGS, 1, message).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert key in answer.error_message


def test_levels_of_loggers_change_while_the_broker_runs(cluster: LocalCluster) -> None:
    logger, broker_logger = "kafka.request.logger", LOGGER
    for level in ("DEBUG", "INFO"):
        changes = [AlterableConfig(logger, 0, level)]
        message = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(broker_logger, "1", changes)]
        )
        [answer] = ask(cluster, INCREMENTAL_ALTER_CONFIGS, 1, message).responses
        assert (answer.error_code, answer.error_message) == (0, None)
        [result] = describe(cluster, (broker_logger, "1", [logger]))
        [entry] = result.configs
        assert (entry.name, entry.value, entry.config_source) == (logger, level, 6)
    [result] = describe(cluster, (broker_logger, "1", []))
    assert {"root", "kafka.server", "state.change.logger"} <= {
        entry.name for entry in result.configs
    }
