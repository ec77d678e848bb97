"""The small world of controllers and their store: it holds, repeats, and finds broken rules.

Each broken rule must be found within a bounded number of seeds, from nothing; the story that is
left after shrinking shows it again, and only with the broken rule.
"""

from __future__ import annotations

import pytest
from tests.support.mutants import LINES, LineMutant

from tidelog.sim.small import controller_search
from tidelog.sim.small.controller_search import ControllerHistory
from tidelog.sim.small.controller_world import CONTROLLER_STEPS
from tidelog.sim.small.small_world import WORLDS, small_world

SEEDS = 24
#: Seeds in which every kind of steps happens.
MOST_SEEDS = 200
#: Rows of the table of mutants that a few seeds find, each of another concern.
FOUND = [
    "V2_1",
    "V8_1",
    "V10_2",
    "unclean_election",
    "V14_1",
    "V22_3",
    "V41_3",
    "V51_1",
    "V52_5",
    "A1_1",
]
#: Rows that take the search more than a CPU second.
LATE = ["V3_1", "V11_1"]


def first_violation(seeds: range) -> ControllerHistory | None:
    for seed in seeds:
        history = controller_search.play(seed)
        if history.violation:
            return history
    return None


def test_every_history_holds_and_nearly_every_kind_of_steps_happens() -> None:
    done: set[str | int] = set()
    for seed in range(SEEDS):
        for history in controller_search.histories(seed):
            assert not history.violation, "\n".join(controller_search.shrunk(history).story())
            done |= {step[0] for step in history.steps}
    assert len(done) >= len(CONTROLLER_STEPS) - 3


@pytest.mark.soak
def test_every_history_of_many_seeds_holds() -> None:
    broken = first_violation(range(SEEDS, 100 * SEEDS))
    assert broken is None, "\n".join(controller_search.shrunk(broken).story())


def test_a_seed_plays_the_same_histories_again() -> None:
    for seed in range(2):
        again = list(controller_search.histories(seed))
        assert list(controller_search.histories(seed)) == again


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(LINES[name], marks=[pytest.mark.soak] if name in LATE else [])
        for name in (*FOUND, *LATE)
    ],
    ids=lambda mutant: mutant.name,
)
def test_a_broken_rule_is_found_and_told(mutant: LineMutant) -> None:
    with mutant.in_force():
        broken = first_violation(range(MOST_SEEDS))
        assert broken is not None, f"{mutant} survived {MOST_SEEDS} seeds"
        short = controller_search.shrunk(broken)
        assert short.violation and len(short.steps) <= len(broken.steps)
        again = controller_search.replayed(short.seed, short.settings, short.steps)
        assert again.violation == short.violation
    sound = controller_search.replayed(short.seed, short.settings, short.steps)
    assert sound.violation == ""


def test_the_world_is_one_of_the_small_worlds_and_tells_a_history_by_its_path() -> None:
    world = small_world("controller")
    assert world.name in WORLDS
    with LINES[FOUND[0]].in_force():
        seed = next(seed for seed in range(MOST_SEEDS) if world.play(seed).violations)
        violation = world.play(seed).violations[0]
        lines: list[str] = []
        again = world.play(seed, violation.path, lines.append)
    assert again.violations == [violation]
    assert lines[-1].strip().startswith("->") and len(lines) > 2
    assert world.play(seed).violations == []
    with pytest.raises(ValueError, match="has no history"):
        world.play(seed, "nowhere")
