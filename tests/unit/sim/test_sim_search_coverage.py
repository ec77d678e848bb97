"""What searches went through: added up over runs and files, and nothing else taken for it."""

from __future__ import annotations

import pytest

from tidelog.core.sometimes import SOMETIMES
from tidelog.sim.results import COUNTERS, RunResult
from tidelog.sim.search_coverage import NO_CHURN, Coverage, CoverageFileError, Pair


def result(profile: str, faults: dict[str, int], churn: dict[str, int], *marks: str) -> RunResult:
    return RunResult(
        seed=1,
        profile=profile,
        trace_hash="",
        events=10,
        simulated_ns=5,
        counters=dict.fromkeys(COUNTERS, 2),
        faults=faults,
        churn=churn,
        marks=dict.fromkeys(marks, 3),
    )


def covered(found: Coverage | None = None) -> Coverage:
    found = found or Coverage()
    found.add(result("default", {"pause": 2}, {"a": 1, "b": 0}, "truncated"))
    found.add(result("default", {"pause": 1, "stop": 1}, {"a": 4, "b": 1}))
    found.add(result("late_isr", {"stop": 1}, {"a": 0}, "truncated", "duplicate_batch"))
    return found


def test_runs_are_added_up_by_profile_and_by_what_met_what() -> None:
    found = covered()
    assert found.runs == 3
    default = found.profiles["default"]
    assert (default.runs, default.events, default.simulated_ns) == (2, 20, 10)
    assert default.faults == {"pause": 3, "stop": 1}
    assert default.churn == {"a": 5, "b": 1}
    assert default.counters["truncations"] == 4
    assert found.marks() == {"truncated": 6, "duplicate_batch": 3}
    assert found.pairs["pause"] == {"a": Pair(2, {"truncated": 1}), "b": Pair(1, {})}
    assert found.pairs["stop"]["a"] == Pair(1, {})
    assert found.pairs["stop"][NO_CHURN] == Pair(1, {"truncated": 1, "duplicate_batch": 1})
    assert len(found.never_reached()) == len(SOMETIMES) - 2


def test_what_struck_nobody_or_was_never_acknowledged_met_nothing() -> None:
    found = Coverage()
    found.add(result("default", {"pause": 2, "strike": 0}, {"topics": 1, "members": 0}))
    found.add(result("default", {"pause": 1}, {"topics": 3}))
    assert found.pairs == {"pause": {"topics": Pair(2, {})}}


def test_a_file_holds_it_and_more_is_added() -> None:
    found = covered()
    read = Coverage.from_json(found.to_json(), "f")
    assert read == found
    read.add_all(found)
    assert read == covered(covered())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 0}',
        '{"version": 1}',
        '{"version": 1, "profiles": 3, "pairs": {}}',
    ],
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(CoverageFileError, match=r"^kept\.json (is no JSON|holds no coverage)"):
        Coverage.from_json(text, "kept.json")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('"runs": 1', '"runs": -1', "profiles.late_isr.runs is -1, a whole number from 0 expected"),
        ('"runs": 1', '"runs": "1"', 'profiles.late_isr.runs is "1", a whole number'),
        ('"runs": 1', '"runs": true', "profiles.late_isr.runs is true, a whole number"),
        ('"runs": 1', '"runs": Infinity', "profiles.late_isr.runs is Infinity, a whole number"),
        ('"runs": 1', '"ran": 1', "profiles.late_isr has no 'runs'"),
        ('"counters": {', '"counters": 0, "more": {', "profiles.default.counters is 0, an object"),
        ('"pairs"', '"peers"', "it has no 'pairs'"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(before: str, after: str, told: str) -> None:
    text = covered().to_json()
    assert before in text
    with pytest.raises(CoverageFileError, match="move it away") as raised:
        Coverage.from_json(text.replace(before, after, 1), "kept.json")
    assert f"kept.json holds no coverage: {told}" in str(raised.value)


def test_a_file_without_end_of_its_depth_is_refused() -> None:
    with pytest.raises(CoverageFileError, match="nested too deeply"):
        Coverage.from_json("[" * 100_000, "kept.json")
