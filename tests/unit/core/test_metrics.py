"""The numbers that a broker keeps of itself."""

from __future__ import annotations

import pytest

from tidelog.core.metrics import COMMANDS_OVERDUE, COMMANDS_REPEATED, METRICS, Metrics


def test_counts_add_up_by_label_and_values_replace_each_other() -> None:
    metrics = Metrics()
    metrics.add(COMMANDS_REPEATED, label=3)
    metrics.add(COMMANDS_REPEATED, 2, label=3)
    metrics.add(COMMANDS_REPEATED, label=1)
    metrics.put(COMMANDS_OVERDUE, 1, label=3)
    metrics.put(COMMANDS_OVERDUE, 0, label=3)
    assert list(metrics) == [
        (COMMANDS_OVERDUE, "3", 0),
        (COMMANDS_REPEATED, "1", 1),
        (COMMANDS_REPEATED, "3", 3),
    ]


def test_what_is_over_is_dropped() -> None:
    metrics = Metrics()
    metrics.put(COMMANDS_OVERDUE, 1, label=3)
    metrics.drop(COMMANDS_OVERDUE, label=3)
    metrics.drop(COMMANDS_OVERDUE, label=4)
    assert list(metrics) == [] and metrics.value(COMMANDS_OVERDUE, 3) == 0


def test_what_is_not_declared_is_not_counted() -> None:
    for count in (Metrics().add, lambda name: Metrics().put(name, 1)):
        with pytest.raises(KeyError):
            count("made_up")


def test_every_metric_is_named_as_dashboards_expect_and_explained() -> None:
    assert all(
        name.startswith(("tidelog_", "kafka_server_", "kafka_log_")) and meaning
        for name, meaning in METRICS.items()
    )
