"""Searches over seeds: which runs are made, what is kept, what is concluded."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tidelog.core.errors import ConfigError
from tidelog.sim.job import Job
from tidelog.sim.mutation import MutantNotFoundError
from tidelog.sim.policies import POLICIES, UNCHANGED
from tidelog.sim.profiles import PROFILES
from tidelog.sim.run import MIXED, profile_of
from tidelog.spark.pipelines.html import page
from tidelog.spark.pipelines.simulate import work
from tidelog.spark.pipelines.simulate.findings import report_of
from tidelog.spark.pipelines.simulate.paired import FEWEST_PAIRS, compare, interval
from tidelog.spark.pipelines.simulate.run_table import SCHEMA, RunTable, RunTableError
from tidelog.spark.pipelines.simulate.work import (
    EVERY_PROFILE,
    code_digest,
    into_tasks,
    key_of,
    missing,
    plan_jobs,
)


def row(seed: int, policy: str = UNCHANGED, **changes: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "profile": "default",
        "seed": seed,
        "policy": policy,
        "mutant": "",
        "faults": "",
        "code": "c",
        "command": Job(seed, policy=policy).command(),
        "trace_hash": f"{seed}",
        "events": 100,
        "simulated_ns": 2_000_000_000,
        "seconds": 0.5,
        "violation": "",
        "failure": "",
        "counters": {"acknowledged records": 7},
        "played": {"pause": 2},
        "marks": {},
        "outcomes": {"isr_changes": float(seed), "produce_p99_ms": 1.0},
    }
    return empty | changes


class TestPlan:
    def test_policies_of_a_seed_stand_together_and_nothing_twice(self) -> None:
        jobs = plan_jobs(
            range(2), ["default", "late_roles", "default"], ["min_isr_2", "min_isr_1", "min_isr_2"]
        )
        assert [key_of(job)[:3] for job in jobs] == [
            ("default", 0, "min_isr_2"),
            ("default", 0, "min_isr_1"),
            ("late_roles", 0, "min_isr_2"),
            ("late_roles", 0, "min_isr_1"),
            ("default", 1, "min_isr_2"),
            ("default", 1, "min_isr_1"),
            ("late_roles", 1, "min_isr_2"),
            ("late_roles", 1, "min_isr_1"),
        ]

    def test_mixed_and_every_name_real_profiles(self) -> None:
        assert [job.profile for job in plan_jobs(range(4), [MIXED])] == [
            profile_of(seed) for seed in range(4)
        ]
        every = {job.profile for job in plan_jobs([0], [EVERY_PROFILE])}
        assert every == set(PROFILES)

    def test_unknown_names_are_errors_that_list_the_known_ones(self) -> None:
        with pytest.raises(ConfigError, match="no profile 'defalt'; there are default"):
            plan_jobs([0], ["defalt"])
        with pytest.raises(ConfigError, match="no policy 'min_isr'; there are min_isr_"):
            plan_jobs([0], policies=["min_isr"])
        with pytest.raises(ConfigError, match="no fault 'pauze'; there are pause"):
            plan_jobs([0], faults=["pauze"])
        with pytest.raises(MutantNotFoundError):
            plan_jobs([0], mutant="tests.support.mutants:none")
        with pytest.raises(ConfigError, match="no seeds"):
            plan_jobs([])

    def test_finished_runs_are_left_out(self) -> None:
        jobs = plan_jobs(range(3))
        assert [job.seed for job in missing(jobs, {key_of(jobs[1])})] == [0, 2]

    def test_tasks_are_coarse_but_leave_no_slot_idle(self) -> None:
        jobs = plan_jobs(range(10))
        assert [len(task) for task in into_tasks(jobs, 4, 2)] == [4, 4, 2]
        assert [len(task) for task in into_tasks(jobs[:4], 4, 2)] == [2, 2]
        assert into_tasks([], 4, 2) == []
        assert [job for task in into_tasks(jobs, 3, 1) for job in task] == jobs

    def test_a_job_names_its_policy_in_its_command(self) -> None:
        assert Job(3, policy="direct").command() == "tidelog sim replay 3 --policy direct"


def test_the_digest_of_code_depends_on_every_deciding_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    source = tmp_path / "log" / "a.py"
    source.write_text("x = 1\n")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(source, "log/a.py")
    monkeypatch.setattr(work, "files", lambda _: tmp_path)
    before = code_digest()
    monkeypatch.setattr(work, "files", lambda _: zipfile.Path(packed))
    assert code_digest() == before
    source.write_text("x = 2\n")
    monkeypatch.setattr(work, "files", lambda _: tmp_path)
    assert code_digest() != before


class TestRunTable:
    def test_rows_come_back_and_a_run_counts_once(self, tmp_path: Path) -> None:
        table = RunTable(tmp_path / "runs")
        with table.locked():
            table.add([row(1), row(2)])
            table.add([row(2), row(3, violation="late")])
            table.add([])
        assert table.rows() == [row(1), row(2), row(3, violation="late")]

    def test_many_files_become_one(self, tmp_path: Path) -> None:
        table = RunTable(tmp_path)
        for seed in range(25):
            table.add([row(seed)])
        table.compact()
        assert [path.name for path in tmp_path.glob("*.parquet")] == ["runs-000026.parquet"]
        assert table.rows() == [row(seed) for seed in range(25)]

    def test_a_second_search_is_refused(self, tmp_path: Path) -> None:
        with (
            RunTable(tmp_path).locked(),
            pytest.raises(RunTableError, match="another search writes there"),
            RunTable(tmp_path).locked(),
        ):
            pass

    def test_unusable_directories_and_files_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with (
            pytest.raises(RunTableError, match="file: runs cannot be kept there"),
            RunTable(tmp_path / "file").locked(),
        ):
            pass
        (tmp_path / "runs-000001.parquet").write_bytes(b"no parquet")
        with pytest.raises(RunTableError, match="runs-000001.parquet is no Parquet file of runs"):
            RunTable(tmp_path).rows()

    def test_the_schema_has_what_rows_have(self) -> None:
        assert SCHEMA.names == [*list(row(1))]


class TestComparison:
    def test_pairs_share_profile_and_seed(self) -> None:
        base = {("p", seed): {"x": 10.0 + seed} for seed in range(20)}
        other = {("p", seed): {"x": 7.0 + seed + seed % 2} for seed in range(5, 25)}
        (found,) = compare(base, other, "late")
        assert (found.pairs, found.less, found.more) == (15, 15, 0)
        assert found.difference == pytest.approx(-3 + 8 / 15)
        assert -3 <= found.low < found.difference < found.high <= -2
        assert found.verdict == "less"

    def test_equal_runs_show_no_difference(self) -> None:
        base = {("p", seed): {"x": float(seed)} for seed in range(20)}
        (found,) = compare(base, base, "same")
        assert (found.difference, found.low, found.high) == (0.0, 0.0, 0.0)
        assert found.verdict == "no difference shown"

    def test_few_pairs_allow_no_conclusion(self) -> None:
        base = {("p", seed): {"x": 1.0} for seed in range(FEWEST_PAIRS - 1)}
        other = {key: {"x": 5.0} for key in base}
        assert compare(base, other, "o")[0].verdict == "too few pairs"
        assert compare(base, {}, "o") == []

    @pytest.mark.parametrize(
        ("samples", "fewest"), [(40, 35), pytest.param(80, 70, marks=pytest.mark.soak)]
    )
    def test_the_interval_covers_the_mean_as_often_as_it_says(
        self, samples: int, fewest: int
    ) -> None:
        """Of samples of an exponential distribution, about 95 % hold its mean 1."""
        import numpy as np

        draw = np.random.default_rng(7)
        held = 0
        for number in range(samples):
            low, high = interval(draw.exponential(1.0, 60).tolist(), number)
            held += low <= 1.0 <= high
        assert fewest <= held < samples

    def test_the_interval_depends_on_the_data_alone(self) -> None:
        values = [1.0, 5.0, 2.0, 9.0]
        assert interval(values, 3) == interval(values, 3)


class TestReport:
    def test_violations_are_grouped_with_their_smallest_seed(self) -> None:
        rows = [
            row(9, violation="1.5 s: steady-1 offset 3: record 5 is lost"),
            row(4, violation="2.5 s: steady-0 offset 8: record 1 is lost"),
            row(5, violation="not in time: in sync again"),
            row(6),
        ]
        report = report_of(rows, [UNCHANGED], 4, 1.0)
        assert not report.holds
        assert report.verdict.startswith("3 of 4 runs show a violation; tidelog sim replay 4 ")
        (violations,) = [table for table in report.tables if table.title == "Violations"]
        assert [line[2:4] for line in violations.rows] == [(1, 5), (2, 4)]
        assert violations.rows[1][-1] == rows[1]["command"]

    def test_a_run_that_raised_is_no_success(self) -> None:
        report = report_of([row(1, failure="Trace\nKeyError: 3"), row(2)], [UNCHANGED], 2, 1.0)
        assert not report.holds
        assert report.tables[0].rows[0][-1] == "KeyError: 3"

    def test_policies_are_compared_without_runs_that_ended_early(self) -> None:
        rows = [row(seed, "min_isr_2") for seed in range(20)]
        rows += [
            row(seed, "min_isr_1", outcomes={"isr_changes": seed + 2.0, "produce_p99_ms": 1.0})
            for seed in range(19)
        ]
        rows.append(row(19, "min_isr_1", violation="x", outcomes={}))
        report = report_of(rows, ["min_isr_2", "min_isr_1"], 40, 1.0)
        (table,) = [each for each in report.tables if each.title.startswith("Differences")]
        assert [line[0:4] for line in table.rows] == [
            ("isr_changes", "changes", "min_isr_1", 19),
            ("produce_p99_ms", "ms", "min_isr_1", 19),
        ]
        assert [line[-1] for line in table.rows] == ["more", "no difference shown"]
        assert [figure.title for figure in report.figures] == [
            "isr_changes: ISR shrinks and expansions"
        ]
        assert "<svg" in page(report)


def test_a_policy_keeps_the_rest_of_the_profile() -> None:
    profile = PROFILES["direct"]
    changed = POLICIES["min_isr_1"].applied(profile)
    assert changed.properties == {**profile.properties, "min.insync.replicas": "1"}
    assert changed.protocol_levels == ("2.6",)
    assert POLICIES["alter_partition"].applied(profile).protocol_levels == ()
    assert POLICIES[UNCHANGED].applied(profile) == profile
