"""Durations of failovers' phases, from the documents of events."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.spark.pipelines.analyze import failover_phases as phases
from tidelog.spark.pipelines.analyze.failover_phases import Failover, durations
from tidelog.spark.pipelines.analyze.partition_history import Handover

FAILOVER: dict[str, Any] = {
    "kind": "failover",
    "time_ms": 1_100,
    "told_by": 3,
    "controller_epoch": 2,
    "brokers": [2],
    "cause": "death",
    "detection_ms": 25,
    "partitions": 2,
    "phases_ms": {"read": 5, "decide": 2, "write": 4, "command": 2, "lead": 18},
    "sample": [
        {"topic": "t", "partition": 0, "leader": 1, "leader_epoch": 1, "led_ms": 26},
        {"topic": "t", "partition": 1, "leader": 3, "leader_epoch": 7, "led_ms": 31},
    ],
    "superseded": 0,
    "unanswered": 0,
}
TAKEOVER = {"phases_ms": {"connect": 9, "truncate": -1, "first_fetch": 7, "acknowledge": 40}}


def test_a_failover_and_the_time_of_each_partition() -> None:
    found = Failover.from_event(FAILOVER)
    assert (found.detection_ms, found.election_ms, found.propagation_ms) == (25, 11, 20)
    noticed = 1_100 - 31
    assert [each.handover for each in found.led] == [
        Handover(1, noticed - 25, noticed + 26),
        Handover(7, noticed - 25, noticed + 31),
    ]


def test_durations_with_a_takeover() -> None:
    led = Failover.from_event(FAILOVER).led[:1]
    assert durations(led, TAKEOVER) == [
        (phases.DETECTION, 25),
        (phases.ELECTION, 11),
        (phases.PROPAGATION, 15),
        (phases.UNTIL_LED, 51),
        (phases.CONNECT, 9),
        (phases.FIRST_FETCH, 7),
        (phases.ACKNOWLEDGE, 40),
        (phases.UNTIL_ACKNOWLEDGED, 91),
    ]


def test_a_death_without_a_sign_has_no_detection_and_no_sum() -> None:
    led = Failover.from_event({**FAILOVER, "detection_ms": -1}).led[:1]
    assert led[0].handover.start_ms == 1_100 - 31
    found = dict(durations(led, TAKEOVER))
    assert phases.DETECTION not in found
    assert phases.UNTIL_LED not in found
    assert phases.UNTIL_ACKNOWLEDGED not in found
    assert found[phases.ACKNOWLEDGE] == 40


def test_a_takeover_alone_is_no_failover() -> None:
    assert durations([], TAKEOVER) == []


def test_a_partition_that_two_failovers_name_counts_once() -> None:
    led = Failover.from_event(FAILOVER).led[0]
    assert durations([led, led], None) == durations([led], None)


def test_every_phase_that_is_reported_is_explained() -> None:
    led = Failover.from_event(FAILOVER).led
    assert {name for name, _ in durations(led, TAKEOVER)} <= set(phases.PHASES)


@pytest.mark.parametrize("missing", ["phases_ms", "sample", "detection_ms", "brokers"])
def test_a_document_without_a_field_is_no_failover(missing: str) -> None:
    with pytest.raises(KeyError):
        Failover.from_event({name: value for name, value in FAILOVER.items() if name != missing})
