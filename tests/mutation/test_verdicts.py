"""Verdicts are kept one by one, and a later search goes on with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutation.drawing import mutants_of
from tests.mutation.verdicts import Outcome, Verdict, VerdictFile, known, remaining

TEXT = "def f(a, b):\n    return a < b\n"
MUTANT, *_ = mutants_of("tidelog/log/a.py", TEXT)


def verdict(judge: str, outcome: Outcome, limit_s: int = 60) -> Verdict:
    return Verdict(judge, outcome, "tests/x.py::test_y", "AssertionError: 1 == 2", 1.5, limit_s)


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = VerdictFile(tmp_path / "below" / "verdicts.jsonl")
    assert file.known(MUTANT, TEXT) == {}
    file.add(MUTANT, TEXT, verdict("unit", Outcome.SURVIVED))
    file.add(MUTANT, TEXT, verdict("rules", Outcome.CRASHED))
    file.add(MUTANT, TEXT, verdict("unit", Outcome.KILLED))
    assert file.known(MUTANT, TEXT) == {
        "unit": verdict("unit", Outcome.KILLED),
        "rules": verdict("rules", Outcome.CRASHED),
    }


def test_a_verdict_about_a_file_that_has_changed_does_not_count(tmp_path: Path) -> None:
    file = VerdictFile(tmp_path / "verdicts.jsonl")
    file.add(MUTANT, TEXT, verdict("unit", Outcome.KILLED))
    assert known(file.read(), MUTANT, TEXT + "\n") == {}
    assert list(known(file.read(), MUTANT, TEXT)) == ["unit"]


def test_a_line_that_was_cut_off_is_left_out_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    file = VerdictFile(path)
    file.add(MUTANT, TEXT, verdict("unit", Outcome.KILLED))
    path.write_bytes(path.read_bytes() + b'{"mutant": "a-1')
    assert list(file.known(MUTANT, TEXT)) == ["unit"]
    file.add(MUTANT, TEXT, verdict("rules", Outcome.SURVIVED))
    assert list(file.known(MUTANT, TEXT)) == ["unit", "rules"]
    assert path.read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("outcome", "limit_s", "left"),
    [
        (Outcome.KILLED, 10, []),
        (Outcome.CRASHED, 10, []),
        (Outcome.SURVIVED, 60, []),
        (Outcome.SURVIVED, 59, ["swarm"]),
        (Outcome.UNPROVEN, 59, ["swarm"]),
    ],
)
def test_a_judge_with_more_time_judges_again_what_it_did_not_notice(
    outcome: Outcome, limit_s: int, left: list[str]
) -> None:
    verdicts = {"swarm": verdict("swarm", outcome, limit_s)}
    assert remaining(verdicts, ["swarm"], {"swarm": 60}) == left
    assert remaining(verdicts, ["unit"], {"unit": 60}) == ["unit"]
