"""Mutants replace what is there, put it back, and fail where it is gone."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.mutants import MUTANTS, LineMutant, Mutant, MutantGoneError, applied
from tests.support.mutants import lines as lines_of_files
from tests.support.mutants import mutant as replacing
from tests.support.mutants.lines import changed_functions

from tidelog.sim.profiles import all_named


def in_place(mutant: Mutant | LineMutant) -> list[Any]:
    """What a mutant replaces, as it is now."""
    if isinstance(mutant, LineMutant):
        return [function.__code__ for function, _ in changed_functions(mutant)]
    found = []
    for target in mutant.targets:
        module, _, path = target.partition(":")
        value: Any = importlib.import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
        found.append(value)
    return found


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_in_force_within_and_only_there(name: str) -> None:
    mutant = MUTANTS[name]
    before = in_place(mutant)
    assert before
    with applied(name):
        assert all(one is not other for one, other in zip(in_place(mutant), before, strict=True))
    assert in_place(mutant) == before
    assert mutant.profile in all_named()
    assert mutant.name == name


@pytest.mark.parametrize("target", ["tidelog.replication.truncation:renamed", "json:gone.away"])
def test_a_mutant_whose_target_is_gone_fails(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    gone = Mutant("gone", "V1", "It.", (target,), lambda _: None)
    monkeypatch.setitem(MUTANTS, "gone", gone)
    with pytest.raises(MutantGoneError, match="target of gone is gone"), applied("gone"):
        pass


def test_a_mutant_that_replaces_less_than_its_targets_fails_and_puts_all_back() -> None:
    half = Mutant("half", "V1", "It.", ("json:dumps", "json:loads"), lambda *_: (None,))
    before = (json.dumps, json.loads)
    with pytest.raises(ValueError, match="shorter"), half.in_force():
        pass
    assert (json.dumps, json.loads) == before


def test_two_mutants_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(_: Any) -> None:
        """It."""

    monkeypatch.setattr(replacing, "REPLACEMENTS", {})
    replacing.mutant("V1", "json:dumps")(twice)
    with pytest.raises(ValueError, match="two mutants twice"):
        replacing.mutant("V1", "json:dumps")(twice)


def test_an_unknown_mutant_is_told_with_those_that_are_there() -> None:
    with pytest.raises(MutantGoneError, match="ack_before_replication"), applied("nonsense"):
        pass


def test_no_name_changes_nothing() -> None:
    with applied(""):
        pass


SOURCE = """\
from functools import cache
LIMIT = 1
@cache
def wrapped(): return "wrapped"
def outer(): return [each() for each in (lambda: "inner",)][0]
class Kind:
    name = "class"
    @property
    def got(self): return "got"
    @got.setter
    def got(self, value): self.kept = "set"
    @staticmethod
    def static(): return "static"
    @classmethod
    def of(cls): return "of"
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A module whose lines mutants change."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tidelog_changed.py").write_text(SOURCE)
    monkeypatch.setattr(lines_of_files, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "src")
    yield importlib.import_module("tidelog_changed")
    del sys.modules["tidelog_changed"]


def changed(old: str, new: str) -> LineMutant:
    return LineMutant("V1_1", "V1", "tidelog_changed.py", old, new)


def test_a_line_changes_in_every_kind_of_function(module: Any) -> None:
    def returned() -> list[str]:
        kind = module.Kind()
        kind.got = 1
        module.wrapped.cache_clear()
        return [
            module.wrapped(), module.outer(), kind.got, kind.kept, kind.static(), kind.of()
        ]  # fmt: skip

    sound = returned()
    for place, word in enumerate(["wrapped", "inner", "got", "set", "static", "of"]):
        with changed(f'"{word}"', '"broken"').in_force():
            assert returned() == [*sound[:place], "broken", *sound[place + 1 :]]
        assert returned() == sound


@pytest.mark.parametrize("old", ["LIMIT = 1", 'name = "class"'])
def test_a_line_outside_of_functions_is_refused(module: Any, old: str) -> None:
    mutant = changed(old, "name = 2")
    with pytest.raises(MutantGoneError, match="not in a function"), mutant.in_force():
        pass
