"""The time that an analysis judges: what is given, what follows, what is refused."""

from __future__ import annotations

import pytest
import typer

from tidelog.cli.pipelines.analyze import moment_ms
from tidelog.cli.pipelines.plan import size_bytes
from tidelog.spark.pipelines.analyze.analysis import (
    AnalysisError,
    AnalyzeOptions,
    judgement_of,
    window_size,
)
from tidelog.spark.pipelines.analyze.event_tables import Judgement
from tidelog.spark.pipelines.analyze.findings import EventQuality
from tidelog.spark.pipelines.analyze.present_state import PresentState

QUALITY = EventQuality(10, 0, 0, 0, 0, 0, 1_000, 61_000)
NOW = PresentState(100_000, {}, {"t": 2})


def judged(options: AnalyzeOptions, present_now: PresentState | None = None) -> Judgement:
    return judgement_of(options, QUALITY, present_now)


def test_without_bounds_it_is_the_time_of_the_events() -> None:
    scope = judged(AnalyzeOptions(events="e")).scope
    assert (scope.start_ms, scope.end_ms, scope.complete_from_ms) == (1_000, 61_001, 1_000)
    assert not scope.is_snapshot_known


def test_a_cluster_is_judged_until_it_was_asked() -> None:
    found = judged(AnalyzeOptions(bootstrap="b", end_ms=10**15), NOW)
    assert found.scope.end_ms == 100_000
    assert found.scope.is_snapshot_known
    assert (found.min_isr_of("t"), found.min_isr_of("u")) == (2, 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (AnalyzeOptions(events="e", start_ms=70_000), "is empty: the events are from 1970-01-01T"),
        (AnalyzeOptions(events="e", start_ms=5_000, end_ms=5_000), "is empty"),
        (AnalyzeOptions(events="e", window_ms=1), "60001 windows of 1 ms are too many: 10000 at"),
    ],
)
def test_an_impossible_time_is_refused(options: AnalyzeOptions, sentence: str) -> None:
    with pytest.raises(AnalysisError, match=sentence):
        judged(options)


def test_windows_are_round_and_few() -> None:
    day = 86_400_000
    for length in (1, 60_000, 60_001, 3_600_000, day, 400 * day):
        size = window_size(length)
        assert length <= 60 * size
        assert size % 1_000 == 0


def test_times_on_the_command_line() -> None:
    assert moment_ms(None, 5) is None
    assert moment_ms("6h", 10**12) == 10**12 - 6 * 3_600_000
    assert moment_ms("1700000000000", 0) == 1_700_000_000_000
    assert moment_ms("1970-01-01T00:01", 0) == 60_000
    with pytest.raises(typer.BadParameter, match="or an age before now"):
        moment_ms("yesterday", 0)


def test_sizes_on_the_command_line() -> None:
    assert size_bytes("50MiB") == 50 * 1024 * 1024
    assert size_bytes("1.5 GiB/s") == 1.5 * 1024**3
    assert size_bytes("1000") == 1000
    with pytest.raises(typer.BadParameter, match="50MiB, 1GiB or a number expected"):
        size_bytes("fast")
