"""Traffic by topic, with a bounded number of series."""

from __future__ import annotations

import pytest

from tidelog.broker.replicas import metrics as declared
from tidelog.broker.replicas.hosting import topic_meters
from tidelog.broker.replicas.hosting.topic_meters import OTHERS, TopicMeters
from tidelog.core.metrics import Metrics
from tidelog.core.types import TopicPartition


def summed(metrics: Metrics) -> int:
    [found] = [
        values[0] for group, values, _ in metrics.readings() if group == (declared.TOPICS_SUMMED,)
    ]
    return found


def test_each_topic_counts_for_itself_and_for_all() -> None:
    metrics = Metrics()
    meters = TopicMeters(metrics)
    meters.hosted("a")
    meters.produced("a", 100, 2)
    meters.produce_failed("a", is_corrupt=True)
    meters.produce_failed("unknown")
    meters.produced("a", 0, 0)
    meters.produce_failed("a", is_counted=True)
    meters.fetched(TopicPartition("a", 0), 60, 0)
    meters.fetched(TopicPartition("a", 1), 0, 6)
    meters.fetched(None, 0, 3)
    for metric, of_topic, of_all in (
        (declared.BYTES_IN, 100, 100),
        (declared.MESSAGES_IN, 2, 2),
        (declared.PRODUCES, 3, 4),
        (declared.FAILED_PRODUCES, 2, 3),
        (declared.BYTES_OUT, 60, 60),
        (declared.FETCHES, 2, 3),
        (declared.FAILED_FETCHES, 1, 2),
        (declared.INVALID_CRCS, 0, 1),
    ):
        assert metrics.value(metric, "a") == of_topic, metric.name
        assert metrics.value(metric, "") == of_all, metric.name
    assert metrics.value(declared.PRODUCES, "unknown") == 0


def test_values_of_acks_that_the_broker_refuses_become_no_labels() -> None:
    metrics = Metrics()
    meters = TopicMeters(metrics)
    for acks in (-1, 1, 1, 0, 2, 32_767, -32_768):
        meters.acknowledged(acks, 70_000)
    found = metrics.samples(declared.ACKNOWLEDGED_MS)
    assert {each.labels: (each.count, each.value) for each in found} == {
        ("-1",): (1, 70),
        ("1",): (2, 140),
    }


def test_topics_beyond_the_limit_share_their_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_meters, "MAX_METERED_TOPICS", 1)
    metrics = Metrics()
    meters = TopicMeters(metrics)
    for topic in ("a", "b", "c", "a"):
        meters.hosted(topic)
        meters.produced(topic, 10, 1)
    assert {each.labels[0]: each.value for each in metrics.samples(declared.BYTES_IN)} == {
        "": 40,
        "a": 20,
        OTHERS: 20,
    }
    assert summed(metrics) == 2
    meters.gone("b")
    meters.gone("a")
    assert summed(metrics) == 1
    assert "a" not in [each.labels[0] for each in metrics.samples(declared.BYTES_IN)]
    meters.hosted("d")
    meters.produced("d", 5, 1)
    assert metrics.value(declared.BYTES_IN, "d") == 5
