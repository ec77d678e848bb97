"""The page of mutants says what the code and the recorded kills say."""

from __future__ import annotations

from tests.sim.mutant_table import SEEDS, TABLE, load, render
from tests.support.mutants import MUTANTS
from tests.support.rules import rule_ids


def test_the_page_is_as_its_command_writes_it() -> None:
    assert TABLE.read_text(encoding="utf-8") == render(MUTANTS, load())


def test_every_mutant_names_a_rule_and_says_what_it_does() -> None:
    rules = rule_ids()
    for mutant in MUTANTS.values():
        assert mutant.rule in rules, mutant.name
        assert mutant.removes.endswith("."), mutant.name


#: Caught by seeds beyond those of a search: each needs two rare faults in a row.
RARE = [
    "epochs_of_other_lives_given_again",
]


def test_every_mutant_was_caught_within_the_seeds_of_a_search() -> None:
    assert [name for name, kill in load().items() if kill.seed not in SEEDS] == RARE
