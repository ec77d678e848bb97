"""The page of drawn mutants: what noticed which, and nothing left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.mutation import page
from tests.mutation.drawing import mutants_of
from tests.mutation.judges import JUDGES
from tests.mutation.verdicts import Outcome, Verdict, VerdictFile

TEXT = "def f(a, b) -> None:\n    g(a | b)\n    return\n    x = a and not b\n"


def verdict(judge: str, outcome: Outcome) -> Verdict:
    return Verdict(judge, outcome, "tests/unit/log/test_x.py::test_y", "1 == 2", 2.0, 60)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Mutants that all notice, tests alone, simulation alone and none; one that is not judged."""
    monkeypatch.setattr(page, "KEPT", tmp_path / "verdicts.json")
    mutants = mutants_of("tidelog/log/x.py", TEXT)[:5]
    file = VerdictFile(tmp_path / "verdicts.jsonl")
    noticed: list[set[str]] = [{"unit", "swarm"}, {"unit"}, {"swarm"}, set()]
    for mutant, judges in zip(mutants, noticed, strict=False):
        for judge in ("unit", "swarm"):
            outcome = Outcome.KILLED if judge in judges else Outcome.SURVIVED
            file.add(mutant, TEXT, verdict(judge, outcome))
    page.keep("7", mutants, file.read(), 99)
    return page.read()


def section(text: str, title: str) -> list[str]:
    """The rows of the table in a section of a page."""
    body = text.partition(f"## {title}")[2].partition("\n## ")[0]
    return [line for line in body.splitlines() if line.startswith("|")][2:]


def test_the_page_counts_what_was_judged(kept: dict[str, Any]) -> None:
    text = page.render(kept, {})
    assert "Seed 7 drew 5 of 99 mutants" in text and "4 of them are judged" in text
    assert section(text, "By judge") == [
        "| unit | 4 | 2 | 0 | 0 | 2 | 0 | 2.0 |",
        "| swarm | 4 | 2 | 0 | 0 | 2 | 0 | 2.0 |",
    ]
    assert "Models and simulation judged 2 mutants" in text and "notice 1 of them" in text
    assert "`log/` | 4 | 0 of 0 | 2 of 4 | 2 of 4 | 1 |" in text


def test_each_survivor_is_listed_with_what_a_look_at_it_found(kept: dict[str, Any]) -> None:
    survivor = kept["mutants"][3]["mutant"]
    [row] = section(page.render(kept, {}), "Survivors of all judges: 1")
    assert row.startswith(f"| {survivor} | `log/x.py` `f` |") and "not looked at yet" in row
    [row] = section(page.render(kept, {survivor: ("equivalent", "no b")}), "Survivors")
    assert row.endswith("| equivalent: no b |")


def test_what_simulation_misses_is_listed_with_the_test(kept: dict[str, Any]) -> None:
    [row] = section(page.render(kept, {}), "Killed by tests, not noticed by models and simulation")
    assert row.startswith(f"| {kept['mutants'][1]['mutant']} |")
    assert row.endswith("| `test_x.py::test_y` |")


def test_code_with_bars_stays_in_its_cell(kept: dict[str, Any]) -> None:
    rows = [line for line in page.render(kept, {}).splitlines() if "a \\| b" in line]
    assert all(line.replace("\\|", "").count("|") == 5 for line in rows)


def test_findings_are_about_survivors_that_are_kept() -> None:
    kept = page.read()
    unnoticed = [each.id for each in page.judged(kept) if not each.is_noticed_by(tuple(JUDGES))]
    found = page.findings()
    assert [
        name for name, (kind, _) in found.items() if kind != "test" and name not in unnoticed
    ] == []
    assert [name for name, (_, words) in found.items() if not words.endswith(".")] == []
