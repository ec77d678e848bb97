"""What `python -m bench simulation` works out of runs and their times; times are made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench import simulation

from tidelog.sim.results import COUNTERS, RunResult


def clock(step_s: float) -> Callable[[], float]:
    """Moves on by so much each time that it is read."""
    now_s = 0.0

    def read() -> float:
        nonlocal now_s
        now_s += step_s
        return now_s

    return read


def run(seed: int) -> RunResult:
    return RunResult(
        seed=seed,
        profile="default",
        trace_hash="",
        events=30_000,
        simulated_ns=40_000_000_000,
        counters=dict.fromkeys(COUNTERS, 0) | {"acknowledged records": 600},
        marks={"truncated": 1, f"state {seed}": 2},
        violation="lost" if seed == 13 else "",
    )


def test_speeds_are_of_processor_time() -> None:
    busy = simulation.measured(range(3), run, clock(2.0))
    told = simulation.report(busy, [80.0, 120.0, 100.0])
    assert "3 seeds of the default profile" in told
    assert "| delivered events per CPU second | 15,000 (15,000-15,000) | >= 10,000 |" in told
    assert "| acknowledged records per CPU minute | 18,000 |" in told
    assert "| distinct interesting states per CPU minute | 40 |" in told
    assert "| distinct interesting states in all | 4 |" in told
    assert "| simulated over CPU time | 20.0 (20.0-20.0) |" in told
    assert "3 brokers, 4 partitions, 5 produces a second, no faults | 100.0 (80.0-120.0)" in told


def test_a_violation_is_no_measurement() -> None:
    with pytest.raises(SystemExit, match="seed 13: lost"):
        simulation.measured([12, 13], run, clock(1.0))


def test_a_quiet_cluster_does_what_its_profile_says() -> None:
    assert simulation.quiet_speed(0, 4.0, clock(0.5)) == pytest.approx(8.0)
