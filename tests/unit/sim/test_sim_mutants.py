"""Mutants replace what is there, put it back, and fail where it is gone."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from tests.support.mutants import MUTANTS, Mutant, MutantGoneError, applied
from tests.support.mutants.mutant import Catalogue

from tidelog.sim.profiles import PROFILES


def originals(mutant: Mutant) -> list[Any]:
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
    before = originals(mutant)
    assert before
    with applied(name):
        assert all(one is not other for one, other in zip(originals(mutant), before, strict=True))
    assert originals(mutant) == before
    assert mutant.profile in PROFILES
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


def test_two_mutants_of_one_name_are_refused() -> None:
    catalogue = Catalogue()

    def twice(_: Any) -> None:
        """It."""

    catalogue.breaks("V1", "json:dumps")(twice)
    with pytest.raises(ValueError, match="two mutants twice"):
        catalogue.breaks("V1", "json:dumps")(twice)


def test_an_unknown_mutant_is_told_with_those_that_are_there() -> None:
    with pytest.raises(MutantGoneError, match="ack_before_replication"), applied("nonsense"):
        pass


def test_no_name_changes_nothing() -> None:
    with applied(""):
        pass
