"""The table of line mutants is whole: every rule that is tested, each line still there, once."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from types import CodeType

import pytest
from tests.support.mutants import LINES, LineMutant, MutantGoneError
from tests.support.mutants.lines import ROOT
from tests.support.rules import pending, rule_ids

MUTANTS = list(LINES.values())


def rules_in_force() -> list[str]:
    return [rule for rule in rule_ids() if rule not in pending("pending")]


def test_every_tested_rule_has_a_line_mutant() -> None:
    rules = [mutant.rule for mutant in MUTANTS]
    assert [rule for rule in rules_in_force() if rule not in rules] == []


def test_only_rules_in_force_have_line_mutants_in_the_order_of_the_rules() -> None:
    rules = list(dict.fromkeys(mutant.rule for mutant in MUTANTS))
    assert rules == [rule for rule in rules_in_force() if rule in rules]
    changes = [(mutant.rule, mutant.file, mutant.old, mutant.new) for mutant in MUTANTS]
    assert len(dict.fromkeys(changes)) == len(MUTANTS)


@cache
def source(file: str) -> tuple[str, list[int]]:
    """The text of a file of src/, and the lines that are code of functions."""
    path = ROOT / "src" / file
    text = path.read_text(encoding="utf-8")
    return text, list(lines_of_functions(compile(text, path, "exec")))


def lines_of_functions(code: CodeType) -> Iterator[int]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & inspect.CO_OPTIMIZED:
                yield from (line for _, _, line in each.co_lines() if line is not None)
            yield from lines_of_functions(each)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_each_line_mutant_changes_one_line_of_a_function_that_is_there_once(
    mutant: LineMutant,
) -> None:
    assert mutant.old != mutant.new
    assert "\n" not in mutant.old + mutant.new
    text, lines = source(mutant.file)
    mutant.applied(text)
    assert text[: text.index(mutant.old)].count("\n") + 1 in lines


@pytest.mark.parametrize("old", ["x = 1", "x = 3"])
def test_a_line_that_is_not_there_exactly_once_is_an_error(old: str) -> None:
    with pytest.raises(MutantGoneError, match=r"not once: name the line that holds the rule now"):
        LineMutant("V1_1", "V1", "x.py", old, "x = 2").applied("x = 1\nx = 1\n")


def test_a_mutant_that_seeds_or_models_kill_has_a_name_and_a_sentence() -> None:
    simulated = [
        mutant
        for mutant in MUTANTS
        if mutant.defect or mutant.profile != "default" or not mutant.name[0].isupper()
    ]
    assert len(simulated) > 30, "this test looks at nothing"
    assert [str(each) for each in simulated if not each.defect or each.name[0].isupper()] == []
