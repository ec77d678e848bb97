"""Brokers with one rule broken are caught, each under a profile that makes its moment common.

The recorded seed is tried first, then the five beside it: what a seed does changes with every
change of the brokers. `python -m tests.sim.mutant_table --search NAME` records another one.
"""

from __future__ import annotations

import pytest
from tests.sim.mutant_table import load

from tidelog.sim.mutants import MUTANTS
from tidelog.sim.run import run_seed

KILLS = load()
CAUGHT = [name for name, mutant in MUTANTS.items() if not mutant.uncaught]
NEIGHBOURS = (1, -1, 2, -2, 3)


def test_every_mutant_has_a_recorded_seed() -> None:
    assert list(KILLS) == CAUGHT


def test_there_are_enough_mutants() -> None:
    assert len(CAUGHT) >= 32


@pytest.mark.parametrize("name", CAUGHT)
def test_a_mutant_is_caught_and_only_the_mutant(name: str) -> None:
    profile, recorded = MUTANTS[name].profile, KILLS[name].seed
    seeds = [recorded, *(recorded + step for step in NEIGHBOURS)]
    for seed in [seed for seed in seeds if seed >= 0]:
        if run_seed(seed, profile, name).violation:
            healthy = run_seed(seed, profile)
            assert not healthy.violation, f"seed {seed} {profile}: {healthy.violation}"
            return
    pytest.fail(f"{name} survived {seeds} of {profile}: python -m tests.sim.mutant_table --search")
