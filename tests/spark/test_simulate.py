"""Seeds of the simulator on executors: stopped, continued, violations with the seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.mutants import importable

from tidelog.sim.job import Job
from tidelog.spark.pipelines.simulate.run_table import RunTable
from tidelog.spark.pipelines.simulate.search import simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLICIES = ("unchanged", "direct")


class StoppedError(Exception):
    """The end of a search by its user."""


def stop_after_one(made: int, _: int) -> None:
    if made:
        raise StoppedError


def test_a_stopped_search_continues_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    options = {
        "profiles": ["late_roles"],
        "policies": POLICIES,
        "directory": str(tmp_path),
        "slots": 1,
        "runs_per_task": 1,
    }
    with pytest.raises(StoppedError):
        simulate(spark, [1], progress=stop_after_one, **options)  # type: ignore[arg-type]  # mixed
    (kept,) = RunTable(tmp_path).rows()
    assert (kept["seed"], kept["policy"], kept["violation"]) == (1, "unchanged", "")
    seen: list[tuple[int, int]] = []
    report = simulate(
        spark,
        [1],
        progress=lambda made, total: seen.append((made, total)),
        **options,  # type: ignore[arg-type]  # values of several types
    )
    assert seen == [(0, 1), (1, 1)]
    assert report.holds
    facts = dict(report.facts)
    assert (facts["runs"], facts["made now"], facts["kept from earlier searches"]) == (2, 1, 1)
    rows = {row["policy"]: row for row in RunTable(tmp_path).rows()}
    assert rows["unchanged"] == kept
    here = Job(1, "late_roles").run()
    assert (kept["trace_hash"], kept["outcomes"]) == (here.trace_hash, here.outcomes)
    assert rows["direct"]["trace_hash"] != kept["trace_hash"]


def test_a_violation_has_its_seed_and_the_command_that_repeats_it(spark: SparkSession) -> None:
    mutant = importable("truncate_to_high_watermark")
    report = simulate(spark, [0], mutant=mutant)
    assert not report.holds
    (violation,) = report.tables[0].rows
    assert violation[2:4] == (1, 0)
    assert violation[-1] == f"tidelog sim replay 0 --mutant {mutant}"
