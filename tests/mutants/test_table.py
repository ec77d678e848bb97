"""The table of line mutants is whole: every rule that is tested, each line still there, once."""

from __future__ import annotations

import pytest
from tests.support.mutants.line_mutants import ROOT, LineMutant, LineMutantError, read_table
from tests.support.rules import pending, rule_ids

MUTANTS = read_table()


def rules_in_force() -> list[str]:
    return [rule for rule in rule_ids() if rule not in pending("pending")]


def test_every_tested_rule_has_a_line_mutant_that_must_be_killed() -> None:
    killed = [one.rule for one in MUTANTS if not one.survives]
    assert [rule for rule in rules_in_force() if rule not in killed] == []


def test_only_rules_in_force_have_line_mutants_in_the_order_of_the_rules() -> None:
    rules = list(dict.fromkeys(one.rule for one in MUTANTS))
    assert rules == [rule for rule in rules_in_force() if rule in rules]
    assert len(dict.fromkeys(MUTANTS)) == len(MUTANTS)


@pytest.mark.parametrize("one", MUTANTS, ids=str)
def test_each_line_mutant_changes_one_line_that_is_there_once(one: LineMutant) -> None:
    assert one.old != one.new
    assert "\n" not in one.old + one.new
    one.applied((ROOT / "src" / one.file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("old", ["x = 1", "x = 3"])
def test_a_line_that_is_not_there_exactly_once_is_an_error(old: str) -> None:
    with pytest.raises(LineMutantError, match=r"not once: name the line that holds the rule now"):
        LineMutant("V1", "x.py", old, "x = 2").applied("x = 1\nx = 1\n")


def test_a_survivor_has_a_reason() -> None:
    assert [str(one) for one in MUTANTS if one.survives and len(one.survives.split()) < 3] == []
