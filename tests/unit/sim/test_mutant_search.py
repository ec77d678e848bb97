"""`python -m tests.support.mutants`: which seeds are tried, what is printed, which exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest
from tests.support.mutants import LINES, MUTANTS, LineMutant, Mutant, importable
from tests.support.mutants import __main__ as command
from tests.support.mutants.search import MutantSearch
from tests.support.mutants.trials import TrialError

from tidelog.sim import job as jobs
from tidelog.sim.job import Job
from tidelog.sim.profiles import SWARM
from tidelog.sim.results import RunResult
from tidelog.sim.swarm import has_drawn, world_of


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["mutants", *words])
    with pytest.raises(SystemExit) as ended:
        command.main()
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, str]]:
    """Replaces the simulator: seed 3 shows a violation, others none. What was asked for."""
    calls: list[tuple[int, str, str]] = []

    def run_seed(seed: int, profile: str, mutant: str, **_: object) -> RunResult:
        calls.append((seed, profile, mutant))
        violation = "two leaders" if seed == 3 else ""
        return RunResult(seed, profile, "", 10, 0, {}, mutant=mutant, violation=violation)

    monkeypatch.setattr(jobs, "run_seed", run_seed)
    return calls


class TestCommand:
    def test_each_is_told_with_how_many_seeds_kill_it(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        asked: list[tuple[int, str, str]],
    ) -> None:
        broken = Mutant("", "V1", "", ("tidelog.x:y",), lambda original: original, "quiet")
        monkeypatch.setattr(command, "MUTANTS", {"one": broken, "two": broken})
        words = ("seeds", "--jobs", "1", "--seeds")
        assert run(monkeypatch, *words, "2..4") == 0
        assert capsys.readouterr().out.splitlines() == [
            f"{name}: killed by 1 of 3 seeds of quiet, earliest by 3" for name in ("one", "two")
        ]
        assert run(monkeypatch, *words, "4..5", "two") == 1
        told = capsys.readouterr()
        assert told.out == "two: killed by 0 of 2 seeds of quiet\n"
        assert "SURVIVED two" in told.err
        assert asked[-2:] == [(4, "quiet", importable("two")), (5, "quiet", importable("two"))]

    def test_a_mutant_that_is_not_there_is_wrong_usage(
        self, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[int, str, str]]
    ) -> None:
        assert run(monkeypatch, "seeds", "nobody") == 2
        assert asked == []

    def test_all_of_them_are_listed(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(monkeypatch, "list") == 0
        listed = capsys.readouterr().out.splitlines()
        assert len(listed) == len({**LINES, **MUTANTS})
        assert listed[0].startswith("V1_1 (V1): tidelog/")
        assert run(monkeypatch, "list", "kip101_only", "V45") == 0
        assert capsys.readouterr().out.splitlines() == [
            f"strays_stay (V45, topic_churn): {MUTANTS['strays_stay'].defect}",
            f"kip101_only (V32, late_roles): {MUTANTS['kip101_only'].defect}",
        ]

    def test_each_line_is_told_with_what_the_tests_of_its_rule_do(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def is_killed(mutant: LineMutant) -> bool:
            if mutant.name == "V4_3":
                raise TrialError("it crashes")
            return mutant.name != "V4_2"

        asked: list[Sequence[str]] = []
        monkeypatch.setattr(command, "check_healthy", asked.append)
        monkeypatch.setattr(command, "is_killed", is_killed)
        assert run(monkeypatch, "try", "V3", "V4_1") == 0
        assert asked == [["V3", "V4"]]
        assert run(monkeypatch, "try", "V4") == 1
        told = capsys.readouterr()
        assert "NOT KILLED V4_2, V4_3" in told.err
        lines = told.out.splitlines()
        assert lines[4].startswith("killed V4_1 tidelog/broker/")
        assert lines[5].startswith("SURVIVED V4_2 ")
        assert lines[6].startswith("PROVES NOTHING V4_3 ") and lines[6].endswith(": it crashes")
        assert lines[-1].startswith("5 mutants, 2 not killed, ")


def test_every_mutant_has_a_turn_before_any_has_its_next_one() -> None:
    asked: list[tuple[str, int]] = []

    def results(jobs: Iterable[Job]) -> Iterator[RunResult]:
        for job in jobs:
            asked.append((job.mutant, job.seed))
            yield replace(
                RunResult(job.seed, job.profile, "", 10, 0, {}, mutant=job.mutant),
                violation="seen" if job.mutant == "weak" else "",
            )

    search = MutantSearch({"weak": "a", "strong": "b"}, range(4), 2)
    told = [hunt.summary() for hunt in search.run(results, lambda: len(asked) == 6)]
    assert asked == [
        ("weak", 0), ("strong", 0), ("weak", 1), ("strong", 1), ("strong", 2), ("strong", 3),
    ]  # fmt: skip
    assert told == [
        "weak: killed by 2 of 2 seeds of a, earliest by 0 1",
        "strong: killed by 0 of 4 seeds of b",
    ]
    early = MutantSearch({"weak": "a", "strong": "b"}, range(4), 3)
    asked.clear()
    assert list(early.run(results, lambda: len(asked) == 3)) == []
    assert [hunt.summary() for hunt in early.open.values()] == [
        "weak: killed by 2 of 2 seeds of a, earliest by 0 1",
        "strong: killed by 0 of 1 seeds of b",
    ]


def test_a_mutant_of_the_swarm_is_searched_for_in_worlds_that_have_what_it_needs() -> None:
    asked: dict[str, list[int]] = {}

    def results(jobs: Iterable[Job]) -> Iterator[RunResult]:
        for job in jobs:
            asked.setdefault(job.mutant, []).append(job.seed)
            yield RunResult(job.seed, job.profile, "", 10, 0, {}, mutant=job.mutant)

    profiles = {"aimed": "default", "drawn": SWARM}
    search = MutantSearch(profiles, range(5, 9), 1, {"aimed": "", "drawn": "unreadable_topic"})
    assert len(list(search.run(results, lambda: False))) == 2
    assert asked["aimed"] == [5, 6, 7, 8]
    assert len(asked["drawn"]) == 4 and asked["drawn"] == sorted(asked["drawn"])
    assert {world_of(seed).scenario for seed in asked["drawn"]} == {"unreadable_topic"}
    assert [
        seed
        for seed in range(5, asked["drawn"][-1])
        if has_drawn(world_of(seed), "unreadable_topic") and seed not in asked["drawn"]
    ] == []
