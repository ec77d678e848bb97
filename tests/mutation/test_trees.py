"""A mutant is in its copy alone, and Python runs it, not a compiled module of another one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.mutation.drawing import DrawnMutant, mutants_of
from tests.mutation.limited import run_limited
from tests.mutation.trees import MutatedTree

FILE = "tidelog/log/small.py"
TEXT = "def value(a):\n    return a + 1000\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    path = tmp_path / "checkout" / "src" / FILE
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    for folder in (path.parent, path.parent.parent):
        (folder / "__init__.py").touch()
    return tmp_path / "checkout"


def value_in(tree: MutatedTree) -> str:
    words = (sys.executable, "-c", "from tidelog.log.small import value; print(value(0))")
    return run_limited(words, tree.root, tree.environment(), 20).printed.strip()


def constants() -> list[DrawnMutant]:
    found = [m for m in mutants_of(FILE, TEXT) if m.change.kind == "constant by one"]
    assert [mutant.change.new for mutant in found] == ["1001", "999"]
    return found


def test_each_mutant_runs_in_its_turn_and_the_code_as_it_was_after_them(
    tmp_path: Path, checkout: Path
) -> None:
    tree = MutatedTree(tmp_path / "copy", checkout)
    more, less = constants()
    values = [value_in(tree)]
    for mutant in (more, less, more):
        tree.put(mutant)
        values += [value_in(tree), value_in(tree)]
    tree.restore()
    values.append(value_in(tree))
    assert values == ["1000", "1001", "1001", "999", "999", "1001", "1001", "1000"]


def test_changes_of_one_size_within_a_second_have_times_of_their_own(
    tmp_path: Path, checkout: Path
) -> None:
    tree = MutatedTree(tmp_path / "copy", checkout)
    path, times = tree.root / "src" / FILE, []
    for mutant in constants() * 2:
        tree.put(mutant)
        times.append(int(path.stat().st_mtime))
    assert len(set(times)) == len(times)


def test_the_checkout_stays_as_it_is(tmp_path: Path, checkout: Path) -> None:
    tree = MutatedTree(tmp_path / "copy", checkout)
    tree.put(constants()[0])
    assert (checkout / "src" / FILE).read_text() == TEXT
    assert (tree.root / "src" / FILE).read_text() == TEXT.replace("1000", "1001")


def test_no_variable_of_the_caller_leads_back_to_the_checkout(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(checkout / "src"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment = MutatedTree(tmp_path / "copy", checkout).environment()
    assert str(checkout) not in environment["PYTHONPATH"]
    assert "PYTHONDONTWRITEBYTECODE" not in environment
