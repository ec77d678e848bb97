"""Policies act on a run's cluster, and outcomes measure it without changing it."""

from __future__ import annotations

import pytest
from tests.sim.runs import result_of

from tidelog.sim.outcomes import OUTCOMES
from tidelog.sim.policies import UNCHANGED
from tidelog.sim.results import RunResult
from tidelog.sim.run import SeedRun, run_seed

SEED = 1003
SAME = ("", UNCHANGED, "min_isr_2", "pending_on", "alter_partition")


@pytest.fixture(scope="module")
def lenient() -> RunResult:
    return run_seed(SEED, policy="min_isr_1")


def test_the_settings_of_the_profile_are_the_same_run() -> None:
    hashes = {run_seed(SEED, policy=name, limit_events=3_000).trace_hash for name in SAME}
    assert len(hashes) == 1


def test_min_isr_1_accepts_records_on_one_copy(lenient: RunResult) -> None:
    strict = result_of(SEED)
    assert not lenient.violation
    assert list(strict.outcomes) == list(OUTCOMES)
    assert lenient.trace_hash != strict.trace_hash
    assert strict.outcomes["records_at_risk"] == 0
    assert strict.outcomes["under_min_isr_ms"] == strict.outcomes["one_copy_ms"] > 0
    assert lenient.outcomes["under_min_isr_ms"] == 0
    assert lenient.outcomes["records_at_risk"] > 0


def test_outcomes_fit_the_counters(lenient: RunResult) -> None:
    for result in (result_of(SEED), lenient):
        found, counters = result.outcomes, result.counters
        assert 0 < found["isr_changes"] <= counters["ISR shrinks"] + counters["ISR expansions"]
        assert found["leader_elections"] <= counters["leader elections"]
        assert found["losses_refused"] == counters["losses refused by the budget"]
        assert 0 < found["produce_median_ms"] <= found["produce_p99_ms"]


def test_a_run_that_ends_early_has_no_outcomes() -> None:
    assert run_seed(SEED, limit_events=2_000).outcomes == {}


def test_direct_brokers_write_state_themselves() -> None:
    direct: list[SeedRun] = []
    asking: list[SeedRun] = []
    run_seed(SEED, policy="direct", limit_events=8_000, observe=direct.append)
    run_seed(SEED, policy="alter_partition", limit_events=8_000, observe=asking.append)
    assert direct_changes(direct[0]) > 0
    assert direct_changes(asking[0]) == 0


def direct_changes(run: SeedRun) -> int:
    return run.cluster.published.direct_changes
