"""The judges of a mutant, in the order of their cost: types, tests, models, simulated worlds.

A judge that notices a mutant is asked once more about the code without the mutant: the test that
failed must pass, the seed that showed a violation must show none. Only then is the mutant noticed.
What counts as killed is what counts in `tests.support.mutants.trials`: an assertion of a test, or
a violation; an error of the code alone is a crash.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.mutation.drawing import DrawnMutant
from tests.mutation.limited import Ended, run_limited
from tests.mutation.reach import Reach
from tests.mutation.trees import MutatedTree
from tests.mutation.verdicts import Outcome, Verdict
from tests.support.mutants.trials import not_running

_SEEN_CHARS: Final = 200
#: CPU seconds to run all tests of a judge under coverage.
_REACH_CPU_S: Final = 3600
#: CPU seconds that a judge of seeds may need beyond its limit, for the seed that it has begun.
SEED_CPU_S: Final = 180


@dataclass(frozen=True, slots=True)
class Place:
    """Where judges work: two copies of the checkout, and directories for what they write."""

    sound: MutatedTree
    mutated: MutatedTree
    #: For requests and reports.
    scratch: Path
    #: For what a later search uses again: types of unchanged modules, the reach of tests.
    kept: Path


#: Judges a mutant, which is in place, within CPU seconds.
Judge = Callable[[Place, DrawnMutant, int], Verdict]


@dataclass(frozen=True, slots=True)
class JudgeKind:
    """A judge with the CPU seconds that it has for each mutant unless it is given others."""

    name: str
    meaning: str
    limit_s: int
    judge: Judge


def by_types(place: Place, mutant: DrawnMutant, limit_s: int) -> Verdict:
    """Check the types of the package with mypy."""
    words = (sys.executable, "-m", "mypy", "--cache-dir", str(place.kept / "types"), "src/tidelog")
    ended = run_limited(words, place.mutated.root, place.mutated.environment(), limit_s)
    errors = [line for line in ended.printed.splitlines() if ": error: " in line]
    outcome, seen = Outcome.SURVIVED, ""
    if ended.code == 1 and errors:
        outcome, seen = Outcome.KILLED, errors[0]
    elif ended.code != 0:
        outcome, seen = Outcome.UNPROVEN, f"exit code {ended.code}: {ended.printed[-_SEEN_CHARS:]}"
    return Verdict("types", outcome, "mypy", seen[:_SEEN_CHARS], ended.cpu_s, limit_s)


def judge_by_tests(name: str, paths: Callable[[str], Sequence[str]]) -> Judge:
    """Return a judge that runs those tests below `paths(package)` that call the function."""

    def judge(place: Place, mutant: DrawnMutant, limit_s: int) -> Verdict:
        reach = reach_of(place, paths(mutant.package))
        tests = reach.tests_of(mutant.file, mutant.change.function)
        if not tests:
            return Verdict(name, Outcome.SURVIVED, "no test calls the function", "", 0.0, limit_s)
        ended, report, current = _ask(place, place.mutated, "by_tests", {"tests": tests}, limit_s)
        outcome, by, seen = outcome_of_tests(ended, report, current, len(tests))
        if by and outcome in (Outcome.KILLED, Outcome.CRASHED, Outcome.HUNG):
            sound = _ask(place, place.sound, "by_tests", {"tests": [by]}, limit_s)[1]
            outcome, seen = proven(outcome, seen, sound)
        return Verdict(name, outcome, by, seen[:_SEEN_CHARS], ended.cpu_s, limit_s)

    return judge


def outcome_of_tests(
    ended: Ended, report: Mapping[str, Any] | None, current: str, chosen: int
) -> tuple[Outcome, str, str]:
    """Return what a run of so many chosen tests says, the test that says it, and its words.

    `report` is None where the run did not come to its end, `current` the last test that began.
    """
    if report is None:
        if ended.code is not None and ended.is_out_of_time:
            return Outcome.HUNG, current, "the test does not end"
        return Outcome.UNPROVEN, "", f"exit code {ended.code}: {ended.printed[-_SEEN_CHARS:]}"
    failures = sorted(report["failures"], key=lambda each: not each["by_assertion"])
    if failures:
        first = failures[0]
        outcome = Outcome.KILLED if first["by_assertion"] else Outcome.CRASHED
        return outcome, first["test"], f"{first['error']}: {first['words']}"
    if report["code"] == 0 and report["ran"] == chosen:
        return Outcome.SURVIVED, "", f"{chosen} tests"
    if report["code"] in (1, 2, 3, 4) and not report["ran"]:
        return Outcome.CRASHED, "", "the tests cannot be collected"
    return Outcome.UNPROVEN, "", f"{report['ran']} of {chosen} tests ran, code {report['code']}"


def proven(outcome: Outcome, seen: str, sound: Mapping[str, Any] | None) -> tuple[Outcome, str]:
    """Return what a failure says, after the report of its test alone on the sound code."""
    if sound is None or (sound["code"], sound["ran"]) != (0, 1):
        return Outcome.UNPROVEN, f"fails without the mutant, too: {seen}"
    return outcome, seen


def judge_by_seeds(name: str, program: str, what: str) -> Judge:
    """Return a judge that runs seeds until one shows a violation that it does not show without.

    `program` is the module of this package that runs them, `what` are the things that it counts.
    """

    def judge(place: Place, mutant: DrawnMutant, limit_s: int) -> Verdict:
        spent_s, first, tried, seen = 0.0, 0, 0, ""
        while spent_s < limit_s:
            left_s = limit_s - spent_s
            request = {"first": first, "cpu_s": left_s, "only": None}
            ended, report, current = _ask(
                place, place.mutated, program, request, int(left_s) + SEED_CPU_S
            )
            spent_s += ended.cpu_s
            if report is None:
                outcome = Outcome.HUNG if ended.is_out_of_time else Outcome.UNPROVEN
                seen = f"exit code {ended.code}: {ended.printed[-_SEEN_CHARS:]}"
                return Verdict(name, outcome, current, seen, spent_s, limit_s)
            tried += report["tried"]
            if not report["violation"]:
                seen = f"{tried:,} {what}"
                return Verdict(name, Outcome.SURVIVED, "", seen, spent_s, limit_s)
            seen = report["violation"].partition("\n")[0][:_SEEN_CHARS]
            again = {"first": report["seed"], "cpu_s": 0, "only": report["only"]}
            sound = _ask(place, place.sound, program, again, SEED_CPU_S)[1]
            if sound is not None and not sound["violation"]:
                crashed = report["is_crash"] or not_running(report["violation"])
                outcome = Outcome.CRASHED if crashed else Outcome.KILLED
                by = f"seed {report['seed']}, {report['place']}"
                return Verdict(name, outcome, by, seen, spent_s, limit_s)
            seen = f"seed {report['seed']} fails without the mutant, too: {seen}"
            first = report["seed"] + 1
        return Verdict(name, Outcome.UNPROVEN, "", seen[:_SEEN_CHARS], spent_s, limit_s)

    return judge


def reach_of(place: Place, paths: Sequence[str]) -> Reach:
    """Return which of the tests call which functions; recorded once for a state of their code."""
    digest = hashlib.sha256("\n".join(paths).encode())
    for folder in ("src/tidelog", "tests/support", *paths):
        below = place.sound.root / folder
        for path in [below] if below.is_file() else sorted(below.rglob("*.py")):
            digest.update(path.read_bytes())
    kept = place.kept / f"reach-{digest.hexdigest()[:16]}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(".partial")
        words = (sys.executable, "-m", "tests.mutation.reach", str(partial), *paths)
        ended = run_limited(
            words, place.sound.root, place.sound.environment(), _REACH_CPU_S, 3 * _REACH_CPU_S
        )
        if ended.code != 0:
            raise JudgeError(f"the reach of {' '.join(paths)} is unknown:\n{ended.printed}")
        partial.rename(kept)
    return Reach.read(kept)


class JudgeError(Exception):
    """The error of a judge that cannot judge, because its tests fail without any mutant."""


def _ask(
    place: Place, tree: MutatedTree, program: str, request: Mapping[str, Any], limit_s: int
) -> tuple[Ended, dict[str, Any] | None, str]:
    """Run a program of this package in a copy.

    Return how it ended, its report if it wrote one, and what it had begun last.
    """
    asked, report = place.scratch / "request.json", place.scratch / "report.json"
    current = report.with_suffix(".current")
    for path in (report, current):
        path.unlink(missing_ok=True)
    asked.write_text(json.dumps({**request, "report": str(report)}), encoding="utf-8")
    words = (sys.executable, "-m", f"tests.mutation.{program}", str(asked))
    ended = run_limited(words, tree.root, tree.environment(), limit_s)
    written = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    return ended, written, current.read_text(encoding="utf-8") if current.exists() else ""


def _unit_tests(package: str) -> Sequence[str]:
    return (f"tests/unit/{package}",)


def _rule_tests(_: str) -> Sequence[str]:
    return ("tests/rules",)


def _model_tests(_: str) -> Sequence[str]:
    # Variants of models break rules themselves, by lines that a mutant may have changed.
    names = ("models", "pending_model", "reassignment_model", "directory_model")
    return tuple(f"tests/model/test_{name}.py" for name in names)


JUDGES: Final = {
    kind.name: kind
    for kind in (
        JudgeKind("types", "mypy", 120, by_types),
        JudgeKind("unit", "unit tests of the package", 300, judge_by_tests("unit", _unit_tests)),
        JudgeKind("rules", "tests of the rules", 600, judge_by_tests("rules", _rule_tests)),
        JudgeKind("models", "models", 600, judge_by_tests("models", _model_tests)),
        JudgeKind(
            "small",
            "small worlds of the simulator",
            300,
            judge_by_seeds("small", "small_worlds", "histories"),
        ),
        JudgeKind(
            "swarm",
            "whole runs of the swarm",
            600,
            judge_by_seeds("swarm", "whole_runs", "seeds"),
        ),
    )
}
