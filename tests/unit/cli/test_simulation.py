"""`tidelog sim`: which seeds, which profile, what is printed, which exit code; runs are made up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cli import run
from tests.support.mutants import MUTANTS, Mutant, importable

from tidelog.cli import seed_search, simulation
from tidelog.history import Operation, read_history
from tidelog.sim import job as jobs
from tidelog.sim import run as simulator
from tidelog.sim.job import Job
from tidelog.sim.results import COUNTERS, RunResult

QUIET = 999_999


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, str]]:
    """Replaces the simulator: seed 3 shows a violation, QUIET nothing at all, all others enough
    for the marks. What was asked for."""
    calls: list[tuple[int, str, str]] = []

    def run_seed(
        seed: int,
        profile: str,
        mutant: str,
        listener: object = None,
        on_history: Callable[[list[Operation]], None] | None = None,
        *,
        chosen: tuple[str, ...] = (),
        only: str = "",
        observe: object = None,
        policy: str = "",
    ) -> RunResult:
        calls.append((seed, profile, mutant))
        if on_history is not None:
            on_history([Operation("c", "subscribe", 1, 2, topics=["t"])])
        if callable(listener):
            listener("1500000000 1 event broker=1")
        return RunResult(
            seed=seed,
            profile=profile,
            mutant=mutant,
            chosen=chosen,
            only=only,
            trace_hash="ab12",
            events=10,
            simulated_ns=2_000_000_000,
            counters=dict.fromkeys(COUNTERS, 0 if seed == QUIET else 1)
            | {"acknowledged records": 100, "rebalances": 2, "acknowledged commits": 40},
            world=f"brokers {seed}" if profile == "swarm" else "",
            violation="two leaders" if seed == 3 else "",
        )

    def say_shrunk(job: Job, limit_s: float) -> Job:
        return replace(job, only=f"within {limit_s:.0f} s")

    monkeypatch.setattr(simulator, "run_seed", run_seed)
    monkeypatch.setattr(jobs, "run_seed", run_seed)
    monkeypatch.setattr(seed_search, "say_shrunk", say_shrunk)
    monkeypatch.setattr(Job, "story", lambda job: (job.run, [f"the story of {job.command()}"]))
    return calls


class TestRun:
    def test_quiet_seeds_are_summed_up(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        asked: list[tuple[int, str, str]],
    ) -> None:
        assert run(monkeypatch, "sim", "run", "--seeds", "0..2", "--jobs", "1") == 0
        assert asked == [(0, "default", ""), (1, "default", ""), (2, "default", "")]
        printed = capsys.readouterr().out.splitlines()
        assert printed[0].startswith("3 seeds, 30 events, 6 simulated seconds")
        assert "leader elections: 3" in printed
        assert printed[-1] == "violations: 0"

    def test_a_violation_is_one_with_its_seed_and_how_to_replay_it(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        asked: list[tuple[int, str, str]],
    ) -> None:
        assert run(monkeypatch, "sim", "run", "--seeds", "2..5", "--jobs", "1") == 1
        assert [seed for seed, _, _ in asked] == [2, 3, 4, 5]
        output = capsys.readouterr()
        assert "seed 3: VIOLATION two leaders" in output.err
        assert 'the story of tidelog sim replay 3 --only "within 60 s"' in output.err
        assert "known_seeds.txt as: default 3  # two leaders" in output.err
        assert "tidelog sim replay 3 shows it" in output.err
        assert output.out.splitlines()[-1] == "violations: 1 (seeds 3)"

    def test_a_violation_in_the_swarm_is_one_with_the_world_of_its_seed(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        asked: list[tuple[int, str, str]],
    ) -> None:
        words = ("--seeds", "3..4", "--jobs", "1", "--profile", "swarm")
        assert run(monkeypatch, "sim", "run", *words) == 1
        printed = capsys.readouterr().err.splitlines()
        assert "    world: brokers 3" in printed
        assert "    world: brokers 4" not in printed
        assert run(monkeypatch, "sim", "replay", "4", "--profile", "swarm") == 0
        assert "world: brokers 4" in capsys.readouterr().out.splitlines()

    def test_first_ends_at_the_first_violation(
        self, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[int, str, str]]
    ) -> None:
        words = ("sim", "run", "--seeds", "2..5", "--jobs", "1", "--first")
        assert run(monkeypatch, *words) == 1
        assert [seed for seed, _, _ in asked] == [2, 3]

    def test_json_is_one_document(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        asked: list[tuple[int, str, str]],
    ) -> None:
        assert run(monkeypatch, "sim", "run", "--seeds", "3", "--jobs", "1", "-o", "json") == 1
        document = json.loads(capsys.readouterr().out)
        assert document["runs"] == 1
        assert document["violations"][0]["seed"] == 3
        assert document["counters"]["lossy crashes"] == 1

    def test_minutes_go_on_from_the_first_seed(
        self, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[int, str, str]]
    ) -> None:
        words = ("sim", "run", "--seeds", "10", "--jobs", "1", "--minutes", "0.0005")
        assert run(monkeypatch, *words) == 0
        seeds = [seed for seed, _, _ in asked]
        assert seeds == list(range(10, 10 + len(seeds)))

    def test_so_little_time_that_it_is_over_is_enough_for_one_seed(
        self, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[int, str, str]]
    ) -> None:
        assert run(monkeypatch, "sim", "run", "--jobs", "1", "--minutes", "1e-12") == 0
        assert [seed for seed, _, _ in asked] == [0]

    def test_500_seeds_in_which_too_little_happened_are_one(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        asked: list[tuple[int, str, str]],
    ) -> None:
        words = ("sim", "run", "--jobs", "1", "--seeds")
        with_quiet = f"{QUIET - 499}..{QUIET}"
        assert run(monkeypatch, *words, f"{QUIET - 498}..{QUIET}") == 0
        assert run(monkeypatch, *words, with_quiet, "--profile", "quick_restarts") == 0
        assert "TOO LITTLE" not in capsys.readouterr().err
        assert run(monkeypatch, *words, with_quiet) == 1
        told = capsys.readouterr()
        assert "TOO LITTLE HAPPENED leader elections: 499, at least 500 expected" in told.err
        assert "truncations: 499," not in told.err
        assert told.out.splitlines()[-1] == "violations: 0"
        assert run(monkeypatch, *words, f"{QUIET + 1}..{QUIET + 500}") == 0

    def test_a_mutant_brings_its_profile(
        self, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[int, str, str]]
    ) -> None:
        broken = Mutant("m", "V1", "", ("tidelog.x:y",), lambda original: original, "quiet")
        monkeypatch.setattr(sys.modules[__name__], "broken", broken, raising=False)
        name = f"{__name__}:broken"
        words = ("sim", "run", "--seeds", "1", "--jobs", "1", "--mutant", name)
        assert run(monkeypatch, *words) == 0
        assert run(monkeypatch, *words, "--profile", "default") == 0
        assert asked == [(1, "quiet", name), (1, "default", name)]

    def test_a_mutant_is_found_from_the_working_directory(
        self,
        monkeypatch: pytest.MonkeyPatch,
        asked: list[tuple[int, str, str]],
        tmp_path: Path,
    ) -> None:
        (tmp_path / "my_mutants.py").write_text(
            "from contextlib import nullcontext\n"
            "class Broken:\n"
            "    profile = 'pauses'\n"
            "    in_force = staticmethod(nullcontext)\n"
            "broken = Broken()\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [*sys.path])
        words = ("sim", "run", "--seeds", "1", "--jobs", "1", "--mutant", "my_mutants:broken")
        assert run(monkeypatch, *words) == 0
        assert asked == [(1, "pauses", "my_mutants:broken")]

    @pytest.mark.parametrize(
        "words",
        [
            ["--seeds", "5..2"],
            ["--seeds", "x"],
            ["--seeds", "-3..2"],
            ["--mutant", "nobody"],
            ["--mutant", "tests.support.mutants:nobody"],
            ["--mutant", "tests.no_mutants:nobody"],
            ["--mutant", "tests.support.mutants:MUTANTS"],
            ["--profile", "nothing"],
            ["--jobs", "0"],
            ["--seeds", "0..99999999999999999999"],
            ["--minutes", "nan"],
            ["--mutant", importable(next(iter(MUTANTS))), "--coverage", "kept.json"],
            ["--coverage", "nowhere/kept.json"],
            ["--seeds", "1", "--seeds-file", "known_seeds.txt"],
        ],
    )
    def test_wrong_usage_is_two(
        self,
        monkeypatch: pytest.MonkeyPatch,
        asked: list[tuple[int, str, str]],
        words: list[str],
    ) -> None:
        assert run(monkeypatch, "sim", "run", *words) == 2
        assert asked == []

    @pytest.mark.parametrize("option", ["--coverage", "--seeds-file"])
    def test_a_file_that_is_no_text_is_told_before_anything_is_run(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        asked: list[tuple[int, str, str]],
        tmp_path: Path,
        option: str,
    ) -> None:
        file = tmp_path / "file"
        file.write_bytes(b"# \xff\xfe")
        assert run(monkeypatch, "sim", "run", "--jobs", "1", option, str(file)) == 1
        told = capsys.readouterr().err
        assert f"{file}" in told.replace("\n", "") and "text" in told
        assert asked == []


class TestReplay:
    def test_a_seed_is_told_step_by_step(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        asked: list[tuple[int, str, str]],
    ) -> None:
        assert run(monkeypatch, "sim", "replay", "7") == 0
        printed = capsys.readouterr().out
        assert "1.500000 1 event broker=1" in printed
        assert "seed 7: 10 events in 2.0 simulated seconds, trace ab12" in printed
        assert printed.endswith("no violation\n")

    def test_its_history_is_written_down(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: list[tuple[int, str, str]]
    ) -> None:
        path = tmp_path / "history.jsonl"
        assert run(monkeypatch, "sim", "replay", "3", "--history", str(path)) == 1
        with path.open("rb") as lines:
            assert [(number, each.kind) for number, each in read_history(lines)] == [
                (1, "subscribe")
            ]

    def test_a_violation_is_one(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        asked: list[tuple[int, str, str]],
    ) -> None:
        assert run(monkeypatch, "sim", "replay", "3") == 1
        assert "VIOLATION two leaders" in capsys.readouterr().err


def test_seeds_are_given_as_a_range_with_both_ends() -> None:
    assert simulation.parse_seeds("0..499") == range(500)
    assert simulation.parse_seeds("7") == range(7, 8)
