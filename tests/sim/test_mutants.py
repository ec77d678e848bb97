"""Brokers with one rule broken are caught: each mutant at its recorded seed or a few beside it.

The seed says where to look first; what a seed does changes with every change of the brokers. A
search is `tidelog sim run --seeds A..B --mutant NAME`.
"""

from __future__ import annotations

import pytest

from tidelog.sim.mutants import MUTANTS
from tidelog.sim.run import run_seed

#: The seed that killed it last, under the mutant's profile.
KILLING_SEEDS = {
    "truncate_to_high_watermark": 0,
    "ack_before_replication": 0,
    "expand_without_epoch_rule": 0,
    "bounce_unnoticed": 10,
    "topic_id_unchecked": 7,
}
#: Seeds tried beside it.
BESIDE = 24


def test_every_mutant_has_a_killing_seed() -> None:
    assert list(KILLING_SEEDS) == list(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_and_only_the_mutant(name: str) -> None:
    first = KILLING_SEEDS[name]
    profile = MUTANTS[name].profile
    for seed in range(first, first + BESIDE):
        if run_seed(seed, profile, name).violation:
            healthy = run_seed(seed, profile)
            assert not healthy.violation, f"seed {seed} {profile}: {healthy.violation}"
            return
    pytest.fail(f"{name} survived the seeds {first} to {first + BESIDE - 1} of {profile}")
