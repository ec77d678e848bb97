"""The headline of an analysis: what was served, and of how much time nothing is known."""

from __future__ import annotations

import pytest

from tidelog.spark.pipelines.analyze.findings import (
    EventQuality,
    Findings,
    PartitionTimes,
    StateTimes,
)
from tidelog.spark.pipelines.analyze.partition_history import State
from tidelog.spark.pipelines.analyze.presentation import present


def headline(**seconds: int) -> str:
    times = StateTimes({State[name]: 1_000 * value for name, value in seconds.items()})
    findings = Findings(
        source="events",
        start_ms=0,
        end_ms=100_000,
        window_ms=100_000,
        quality=EventQuality(1, 0, 0, 0, 0, 0, 0, 100_000),
        partitions=(PartitionTimes("flights", 0, times),),
        windows={0: times},
    )
    return present(findings).verdict


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (
            {"ACKNOWLEDGING": 80, "NO_LEADER": 20},
            "acks=all was served 80.000 % of the time of 1 partitions; 20.0 partition-seconds"
            " without a leader, 0.0 under min ISR",
        ),
        (
            {"ACKNOWLEDGING": 20, "UNKNOWN": 80},
            "acks=all was served 100.000 % of the time of 1 partitions; 0.0 partition-seconds"
            " without a leader, 0.0 under min ISR, 80.0 unknown, which are no part of the share",
        ),
        ({"UNKNOWN": 100}, "No partition's state is known in this time"),
    ],
)
def test_time_that_is_unknown_is_not_hidden(seconds: dict[str, int], text: str) -> None:
    assert headline(**seconds) == text
