"""What a topic's configuration accepts and what holds where it is silent."""

from __future__ import annotations

import pytest

from tidelog.core.config import BrokerConfig
from tidelog.core.config_keys import keys_of, to_text
from tidelog.core.errors import ConfigError
from tidelog.core.topic_config import (
    TopicConfig,
    settings_without_effect,
    validate_topic_configs,
)

BROKER = BrokerConfig.from_properties(
    {
        "broker.id": "1",
        "log.retention.hours": "1",
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "log.roll.hours": "2",
        "message.max.bytes": "5000",
    }
)


def test_a_topic_without_configuration_has_the_brokers_defaults() -> None:
    topic = TopicConfig.of(BROKER, {})
    assert topic.retention_ms == 3_600_000
    assert topic.min_insync_replicas == 2
    assert topic.segment_ms == 7_200_000
    assert topic.max_message_bytes == 5000


def test_the_defaults_of_the_fields_are_those_of_a_broker_without_configuration() -> None:
    assert TopicConfig.of(BrokerConfig.from_properties({"broker.id": "1"}), {}) == TopicConfig()


def test_what_a_topic_says_wins() -> None:
    topic = TopicConfig.of(BROKER, {"min.insync.replicas": "1", "retention.ms": "-1"})
    assert topic.min_insync_replicas == 1
    assert topic.retention_ms == -1


@pytest.mark.parametrize(
    ("policy", "deletes"),
    [("delete", True), ("compact", False), ("compact,delete", True), ("", False)],
)
def test_only_delete_lets_old_segments_go(policy: str, deletes: bool) -> None:
    assert TopicConfig.of(BROKER, {"cleanup.policy": policy}).deletes_old_segments is deletes


def test_validation_returns_what_is_stored() -> None:
    assert validate_topic_configs({"retention.ms": " 5 "}) == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("retention.ms", "-2", "retention.ms='-2' is not valid: an integer of at least -1"),
        ("retention.ms", None, "retention.ms has no value (null)"),
        ("retention.milliseconds", "1", "not a topic configuration"),
        ("retention.mss", "1", "did you mean retention.ms?"),
        ("compression.type", "brotli", "producer or uncompressed or gzip or snappy or lz4 or zstd"),
        ("compression.type", "ZSTD", "or zstd expected"),
        ("compression.gzip.level", "10", "an integer from 1 to 9, or -1"),
        ("compression.zstd.level", "23", "from -131072 to 22"),
        ("preallocate", "perhaps", "true or false"),
        ("remote.storage.enable", "true", "false expected"),
        ("remote.log.copy.disable", "true", "false expected"),
        ("local.retention.ms", "-3", "at least -2"),
        ("message.format.version", "3.10", "a version of Kafka"),
        ("message.format.version", "0.10.3", "a version of Kafka"),
        ("message.format.version", "2.8-IV2", "a version of Kafka"),
        ("leader.replication.throttled.replicas", "0:1,2", "* or a comma list"),
        ("follower.replication.throttled.replicas", "*,0:1", "* or a comma list"),
        ("message.timestamp.before.max.ms", "-1", "at least 0"),
        ("min.cleanable.dirty.ratio", "1.5", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "a number from 0 to 1"),
        ("cleanup.policy", "delete,", "a comma list of delete, compact"),
        ("cleanup.policy", "Delete", "a comma list of delete, compact"),
        ("segment.bytes", "13", "at least 14"),
        ("min.insync.replicas", "0", "at least 1"),
    ],
)
def test_what_cannot_be_used_is_refused(key: str, value: str | None, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic_configs({key: value})
    assert reason in str(caught.value)


def test_compaction_lags_must_fit_together() -> None:
    with pytest.raises(ConfigError, match=r"must not be more than max\.compaction\.lag\.ms=5"):
        validate_topic_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_a_stored_configuration_that_cannot_be_used_leaves_the_default_and_is_reported() -> None:
    topic, problems = TopicConfig.lenient(
        BROKER, {"retention.ms": "soon", "segment.ms": "7", "from.the.future": "1"}
    )
    assert topic.retention_ms == 3_600_000
    assert topic.segment_ms == 7
    assert len(problems) == 2
    assert "from.the.future" in problems[0]
    assert "retention.ms='soon'" in problems[1]


#: Kafka 3.9's LogConfig: every key, its default, and another value that it takes.
KEYS = """
cleanup.policy delete compact
compression.gzip.level -1 9
compression.lz4.level 9 17
compression.type producer zstd
compression.zstd.level 3 -131072
delete.retention.ms 86400000 0
file.delete.delay.ms 60000 0
flush.messages 9223372036854775807 1
flush.ms 9223372036854775807 0
follower.replication.throttled.replicas - 0:1,1:2
index.interval.bytes 4096 0
leader.replication.throttled.replicas - *
local.retention.bytes -2 -1
local.retention.ms -2 5
max.compaction.lag.ms 9223372036854775807 1
max.message.bytes 1048588 0
message.downconversion.enable true FALSE
message.format.version 3.0-IV1 0.10.1-IV2
message.timestamp.after.max.ms 9223372036854775807 0
message.timestamp.before.max.ms 9223372036854775807 0
message.timestamp.difference.max.ms 9223372036854775807 0
message.timestamp.type CreateTime LogAppendTime
min.cleanable.dirty.ratio 0.5 1
min.compaction.lag.ms 0 1
min.insync.replicas 1 2
preallocate false true
remote.log.copy.disable false FALSE
remote.log.delete.on.disable false false
remote.storage.enable false false
retention.bytes -1 -7
retention.ms 604800000 -1
segment.bytes 1073741824 14
segment.index.bytes 10485760 4
segment.jitter.ms 0 5
segment.ms 604800000 1
unclean.leader.election.enable false true
"""


def test_every_key_of_kafka_is_taken_with_kafkas_default() -> None:
    rows = [line.split() for line in KEYS.split("\n") if line]
    declared = keys_of(TopicConfig)
    of_kafka = [name for name, (_, key, _) in declared.items() if not key.ours]
    assert sorted(of_kafka) == [name for name, _, _ in rows]
    assert [(name, to_text(declared[name][2]) or "-") for name, _, _ in rows] == [
        (name, default) for name, default, _ in rows
    ]
    for name, _, value in rows:
        assert validate_topic_configs({name: value}) == {name: value}


def test_settings_without_effect_are_named_unless_they_are_the_default() -> None:
    found = settings_without_effect(
        {
            "preallocate": "true",
            "message.downconversion.enable": "true",
            "leader.replication.throttled.replicas": "*",
            "retention.ms": "5",
            "from.the.future": "1",
        }
    )
    assert found == [
        "preallocate=true has no effect here: files grow as they are written",
    ]


@pytest.mark.parametrize("version", ["0.8.0", "0.11.0", "2.8.1", "3.0", "3.9-IV0", "3.9.2"])
def test_versions_of_kafka_are_read_as_kafka_reads_them(version: str) -> None:
    assert TopicConfig.of(BROKER, {"message.format.version": version})
