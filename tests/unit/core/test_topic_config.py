"""What a topic's configuration accepts and what holds where it is silent."""

from __future__ import annotations

import pytest

from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError
from tidelog.core.topic_config import TopicConfig, validate_topic_configs

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
    ("policy", "deletes"), [("delete", True), ("compact", False), ("compact,delete", True)]
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
        ("compression.type", "zstd", "zstd is not supported yet"),
        ("compression.type", "brotli", "producer expected"),
        ("preallocate", "true", "false expected"),
        ("min.cleanable.dirty.ratio", "1.5", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "a number from 0 to 1"),
        ("cleanup.policy", "", "a comma list of delete, compact"),
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
