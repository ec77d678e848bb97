"""Failovers, controllers, brokers and losses from documents, and sums from grouped rows."""

from __future__ import annotations

from typing import Any

from tests.unit.spark.test_failover_phases import FAILOVER

from tidelog.spark.pipelines.analyze.findings import BrokerLife, ControllerTerm, UncleanLoss
from tidelog.spark.pipelines.analyze.partition_history import State
from tidelog.spark.pipelines.analyze.summaries import cluster_wide, totals_of


def election(epoch: int, controller: int) -> dict[str, Any]:
    return {"controller_epoch": epoch, "time_ms": 100 * epoch, "controller": controller}


def test_controllers_with_epochs_that_have_no_event() -> None:
    documents = {
        "controller_election": [election(5, 2), election(2, 1)],
        "controller_resignation": [{"controller_epoch": 2, "cause": "session lost"}],
    }
    assert cluster_wide(documents).controllers == (
        ControllerTerm(200, 1, 2, 0, "session lost"),
        ControllerTerm(500, 2, 5, 2, ""),
    )


def test_lives_of_brokers() -> None:
    documents = {
        "registration": [{"broker": 1}, {"broker": 1}, {"broker": 2}],
        "session_loss": [{"broker": 1}],
        "commands_behind": [{"broker": 3}, {"broker": 3, "is_over": True}],
    }
    assert cluster_wide(documents).brokers == (
        BrokerLife(1, 2, 0, 1, 0),
        BrokerLife(2, 1, 0, 0, 0),
        BrokerLife(3, 0, 0, 0, 1),
    )


def test_losses_are_certain_only_with_a_high_watermark() -> None:
    event = {"time_ms": 1, "topic": "t", "partition": 2, "leader": 3, "log_end_offset": 40}
    documents = {
        "unclean_election": [
            {**event, "told_high_watermark": 50},
            {**event, "told_high_watermark": 30},
            {**event, "told_high_watermark": -1},
        ]
    }
    assert cluster_wide(documents).losses == tuple(
        UncleanLoss(1, "t", 2, 3, 40, certain) for certain in (10, 0, None)
    )


def test_documents_without_their_fields_are_counted() -> None:
    documents: dict[str, list[dict[str, Any]]] = {
        "failover": [FAILOVER, {"brokers": [1]}, {**FAILOVER, "phases_ms": None}],
        "registration": [{}],
        "controller_election": [{"controller_epoch": "x"}],
    }
    found = cluster_wide(documents)
    assert len(found.failovers) == 1
    assert found.illegible == 4


def test_sums_of_grouped_rows() -> None:
    def row(**values: Any) -> dict[str, Any]:
        return {"row": "interval", "topic": "t", "partition": 0, "isr": [], **values}

    found = totals_of(
        [
            row(state="acknowledging", leader=1, isr=[1, 2], length_ms=70),
            row(state="acknowledging", leader=2, isr=[2], length_ms=10),
            row(state="no leader", leader=-1, isr=[2], length_ms=20),
            row(partition=1, state="no leader", leader=-1, isr=[3], length_ms=100),
            row(row="quality", missed=2, clock_step_ms=7, illegible=1),
            row(row="quality", partition=1, missed=1, clock_step_ms=9, illegible=0),
        ]
    )
    assert [(str(each), each.times.availability) for each in found.partitions] == [
        ("t-1", 0.0),
        ("t-0", 0.8),
    ]
    assert found.partitions[1].times.ms == {State.ACKNOWLEDGING: 80, State.NO_LEADER: 20}
    assert found.led_ms == {1: 70, 2: 10}
    assert found.replicas == {1: 1, 2: 1, 3: 1}
    assert (found.missed, found.clock_step_ms, found.illegible) == (3, 9, 1)
