"""What judges say of mutants of the real code: by real tests, types and runs, in real copies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.mutation.drawing import DrawnMutant, mutants_of
from tests.mutation.judges import (
    JUDGES,
    JudgeError,
    Place,
    judge_by_tests,
    outcome_of_tests,
    proven,
    reach_of,
)
from tests.mutation.limited import Ended
from tests.mutation.reach import Reach, reached
from tests.mutation.trees import MutatedTree
from tests.mutation.verdicts import Outcome
from tests.support.mutants.lines import ROOT

WATERMARK = "tidelog/replication/watermark.py"
TESTS = ("tests/unit/replication/test_watermark.py",)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("mutation")
    sound, mutated = MutatedTree(root / "sound"), MutatedTree(root / "mutated")
    yield Place(sound, mutated, root, root / "kept")


def mutant_of(function: str, old: str, new: str) -> DrawnMutant:
    """The mutant of the high watermark's module that makes this change."""
    text = (ROOT / "src" / WATERMARK).read_text(encoding="utf-8")
    [found] = [
        mutant
        for mutant in mutants_of(WATERMARK, text)
        if (mutant.change.function, mutant.old, mutant.change.new) == (function, old, new)
    ]
    return found


def test_tests_kill_a_mutant_and_pass_without_it(place: Place) -> None:
    judge = judge_by_tests("unit", lambda _: TESTS)
    place.mutated.put(mutant := mutant_of("effective_minimum", "<", "<="))
    equivalent = judge(place, mutant, 60)
    place.mutated.put(mutant := mutant_of("on_follower", "max", "min"))
    killed = judge(place, mutant, 60)
    assert equivalent.outcome is Outcome.SURVIVED and equivalent.seen != "0 tests"
    assert killed.outcome is Outcome.KILLED
    assert killed.by.startswith(TESTS[0]) and killed.seen.startswith("AssertionError")
    assert killed.cpu_s > 0


def test_tests_that_fail_without_any_mutant_are_no_judges(place: Place) -> None:
    mutant = mutant_of("on_follower", "max", "min")
    place.sound.put(mutant)
    try:
        with pytest.raises(JudgeError, match="the tests fail without any mutant"):
            reach_of(place, TESTS)
    finally:
        place.sound.restore()


@pytest.mark.parametrize("sound", [None, {"code": 1, "ran": 1}, {"code": 0, "ran": 0}])
def test_a_test_that_fails_without_the_mutant_proves_nothing(
    sound: dict[str, object] | None,
) -> None:
    words = "fails without the mutant, too: 1 == 2"
    assert proven(Outcome.KILLED, "1 == 2", sound) == (Outcome.UNPROVEN, words)
    assert proven(Outcome.KILLED, "1 == 2", {"code": 0, "ran": 1}) == (Outcome.KILLED, "1 == 2")


def ended(code: int | None) -> Ended:
    return Ended(code, 1.0, "what it printed")


def failure(test: str, *, by_assertion: bool) -> dict[str, object]:
    return {"test": test, "by_assertion": by_assertion, "error": "E", "words": "w"}


@pytest.mark.parametrize(
    ("code", "report", "expected"),
    [
        (0, {"code": 0, "ran": 3, "failures": []}, (Outcome.SURVIVED, "", "3 tests")),
        (
            0,
            {
                "code": 1,
                "ran": 3,
                "failures": [failure("a", by_assertion=False), failure("b", by_assertion=True)],
            },
            (Outcome.KILLED, "b", "E: w"),
        ),
        (
            0,
            {"code": 1, "ran": 3, "failures": [failure("a", by_assertion=False)]},
            (Outcome.CRASHED, "a", "E: w"),
        ),
        (
            0,
            {"code": 4, "ran": 0, "failures": []},
            (Outcome.CRASHED, "", "the tests cannot be collected"),
        ),
        (
            0,
            {"code": 0, "ran": 2, "failures": []},
            (Outcome.UNPROVEN, "", "2 of 3 tests ran, code 0"),
        ),
        (-24, None, (Outcome.HUNG, "last", "the test does not end")),
        (-27, None, (Outcome.HUNG, "last", "the test does not end")),
        (None, None, (Outcome.UNPROVEN, "", "exit code None: what it printed")),
        (-11, None, (Outcome.UNPROVEN, "", "exit code -11: what it printed")),
    ],
)  # fmt: skip
def test_what_the_run_of_tests_says(
    code: int | None, report: dict[str, object] | None, expected: tuple[Outcome, str, str]
) -> None:
    assert outcome_of_tests(ended(code), report, "last", 3) == expected


def test_tests_that_enter_a_function_concern_it() -> None:
    cpu_s = {"a.py::slow": 2.0, "a.py::fast": 0.1, "b.py::other": 0.2, "b.py::last": 0.1}
    found = reached({"f": ["a.py::fast", "b.py::other"], "g": ["b.py::last", ""]}, cpu_s, [])
    assert found == {"f": [1, 2], "g": [0, 1, 2, 3]}
    assert reached({"f": ["a.py::fast"]}, cpu_s, ["a.py"]) == {"f": [0, 1]}


def test_cheap_files_come_first_and_tests_keep_their_order() -> None:
    cpu_s = {"a.py::one": 2.0, "b.py::one": 0.1, "a.py::two": 0.1, "b.py::two": 0.3}
    everywhere = {("x.py", "f"): list(cpu_s), ("x.py", "g"): ["a.py::two"]}
    reach = Reach(cpu_s, everywhere)
    assert reach.tests_of("x.py", "f") == ["b.py::one", "b.py::two", "a.py::one", "a.py::two"]
    assert reach.tests_of("x.py", "g") == ["a.py::two"]
    assert reach.tests_of("x.py", "h") == []


@pytest.mark.parametrize("name", ["small", pytest.param("swarm", marks=pytest.mark.soak)])
def test_seeds_kill_a_mutant_and_show_nothing_without_it(name: str, place: Place) -> None:
    place.mutated.put(mutant := mutant_of("on_follower", "min", "max"))
    verdict = JUDGES[name].judge(place, mutant, 60)
    assert verdict.outcome is Outcome.KILLED
    assert verdict.by.startswith("seed ")
