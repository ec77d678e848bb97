"""The page of mutants says what the code and the recorded kills say."""

from __future__ import annotations

from tests.support.mutants import MUTANTS, kills, page
from tests.support.rules import rule_ids

from tidelog.sim.profiles import SWARM
from tidelog.sim.swarm import has_drawn, world_of


def test_the_page_is_as_its_command_writes_it() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.render(kills.load())


def test_every_mutant_names_a_rule_and_says_what_it_does() -> None:
    rules = rule_ids()
    for mutant in MUTANTS.values():
        assert mutant.rule in rules, mutant.name
        assert mutant.defect.endswith("."), mutant.name


#: Killed by seeds beyond those of a search: each needs two rare faults in a row.
RARE = [
    "own_isr_change_hides_a_later_one",
    "epochs_of_other_lives_given_again",
]


def test_every_mutant_was_killed_within_the_seeds_of_a_search() -> None:
    """Or in a world of the swarm that has what the search for the mutant asks for."""
    beyond = {name: kill for name, kill in kills.load().items() if kill.seed not in kills.SEEDS}
    worlds = {name: MUTANTS[name].world for name in beyond if MUTANTS[name].world}
    assert {MUTANTS[name].profile for name in worlds} == {SWARM}
    assert [
        n for n, world in worlds.items() if not has_drawn(world_of(beyond[n].seed), world)
    ] == []
    assert [name for name in beyond if name not in worlds] == RARE
