"""Mutants replace what is there, put it back, and fail where it is gone."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tidelog.sim.faults import PROFILES
from tidelog.sim.mutants import MUTANTS, Mutant, MutantGoneError, applied


def target(mutant: Mutant) -> Any:
    found: Any = importlib.import_module(mutant.module)
    for part in mutant.attribute.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_in_force_within_and_only_there(name: str) -> None:
    mutant = MUTANTS[name]
    original = target(mutant)
    with applied(name):
        assert target(mutant) is not original
    assert target(mutant) is original
    assert mutant.profile in PROFILES


def test_a_mutant_whose_target_is_gone_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Mutant("gone", "tidelog.replication.truncation", "renamed", lambda _: None)
    monkeypatch.setitem(MUTANTS, "gone", gone)  # type: ignore[arg-type]
    with pytest.raises(MutantGoneError, match="target of gone is gone"), applied("gone"):
        pass


def test_an_unknown_mutant_is_told_with_those_that_are_there() -> None:
    with pytest.raises(MutantGoneError, match="ack_before_replication"), applied("nonsense"):
        pass


def test_no_name_changes_nothing() -> None:
    with applied(""):
        pass


def test_the_mutants_asked_for_are_there() -> None:
    assert list(MUTANTS) == [
        "truncate_to_high_watermark",
        "ack_before_replication",
        "expand_without_epoch_rule",
        "bounce_unnoticed",
        "topic_id_unchecked",
        "commands_out_of_order",
        "clean_stop_unflushed",
        "compaction_ignores_high_watermark",
        "compaction_drops_last_value",
        "offsets_acked_before_replicated",
        "generation_unchecked",
        "loaded_to_hw_only",
        "missed_changes_stay_missed",
    ]
