"""The numbers that a broker keeps of itself."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import pytest

from tidelog import broker
from tidelog.broker.apis.describe_metrics import METRICS
from tidelog.core.metrics import MetricKind, Metrics, counter, declared, gauge, histogram

SENT = counter("tidelog_sent_total", "commands sent", "broker")
LATE = gauge("tidelog_late", "commands that are late", "broker")
TAKEN_MS = histogram("tidelog_taken_ms", "time that commands took", bounds=(10, 100))


def test_counts_add_up_by_label_and_values_replace_each_other() -> None:
    metrics = Metrics()
    metrics.add(SENT, 1, 3)
    metrics.add(SENT, 2, 3)
    metrics.add(SENT, 1, 1)
    metrics.put(LATE, 1, 3)
    metrics.put(LATE, 0, 3)
    assert [(each.labels, each.value) for each in metrics.samples(SENT)] == [
        (("1",), 1),
        (("3",), 3),
    ]
    assert [(each.labels, each.value) for each in metrics.samples(LATE)] == [(("3",), 0)]


def test_a_histogram_counts_observations_by_their_bounds() -> None:
    metrics = Metrics()
    for taken_ms in (0, 10, 11, 100, 101, 5_000):
        metrics.observe(TAKEN_MS, taken_ms)
    [found] = metrics.samples(TAKEN_MS)
    assert (found.buckets, found.count, found.value) == ([2, 2, 2], 6, 5_222)


def test_what_is_over_is_dropped() -> None:
    metrics = Metrics()
    metrics.put(LATE, 1, 3)
    metrics.drop(LATE, 3)
    metrics.drop(LATE, 4)
    assert list(metrics.samples(LATE)) == [] and metrics.value(LATE, 3) == 0


def test_a_counter_without_labels_is_there_before_it_has_counted() -> None:
    plain = counter("tidelog_plain_total", "what happened")
    assert [each.value for each in Metrics().samples(plain)] == [0]
    assert list(Metrics().samples(TAKEN_MS)) == []


def test_values_must_fit_the_labels() -> None:
    for labels in ((), (1, 2)):
        with pytest.raises(ValueError, match=r"tidelog_sent_total has the labels \('broker',\)"):
            Metrics().add(SENT, 1, *labels)


def test_every_declared_metric_is_read() -> None:
    modules = [
        import_module(each.name) for each in walk_packages(broker.__path__, "tidelog.broker.")
    ]
    found = {each for module in modules for each in declared(module)}
    assert found == set(METRICS) and len({each.name for each in METRICS}) == len(METRICS) > 20


def test_every_metric_is_named_as_dashboards_expect_and_explained() -> None:
    for each in METRICS:
        assert each.name.startswith(("tidelog_", "kafka_", "kminion_")) and each.meaning
        assert each.name.endswith("_total") is (each.kind is MetricKind.COUNTER)
