"""Brokers with one rule broken are caught, each under a profile that makes its moment common.

What a seed does changes with every change of the brokers, so no single seed is relied upon: those
that killed early when they were recorded are tried first, then a small range, and one kill is
enough. The profiles kill in about every second seed or more. `tidelog sim mutants` searches anew
and names the seeds that kill earliest.
"""

from __future__ import annotations

import pytest

from tidelog.sim.mutants import MUTANTS
from tidelog.sim.run import run_seed

#: Seeds of the mutant's profile that killed it soon after the start.
KILLING_SEEDS = {
    "truncate_to_high_watermark": (14, 7, 8),
    "ack_before_replication": (10, 4, 9),
    "expand_without_epoch_rule": (8, 14, 13),
    "bounce_unnoticed": (6, 0, 11),
    "topic_id_unchecked": (0, 5, 8),
    "commands_out_of_order": (33, 18, 17),
    "clean_stop_unflushed": (14, 8, 15),
    "compaction_ignores_high_watermark": (6, 5, 14),
    "compaction_drops_last_value": (7, 3, 9),
    "offsets_acked_before_replicated": (5, 13, 4),
    "generation_unchecked": (9, 1, 15),
    "loaded_to_hw_only": (1, 14, 6),
    "missed_changes_stay_missed": (6, 2, 0),
}
#: Seeds tried where none of them kills any more.
OTHERS = range(16)


def test_every_mutant_has_killing_seeds() -> None:
    assert list(KILLING_SEEDS) == list(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_and_only_the_mutant(name: str) -> None:
    profile = MUTANTS[name].profile
    seeds = list(dict.fromkeys((*KILLING_SEEDS[name], *OTHERS)))
    for seed in seeds:
        if run_seed(seed, profile, name).violation:
            healthy = run_seed(seed, profile)
            assert not healthy.violation, f"seed {seed} {profile}: {healthy.violation}"
            return
    pytest.fail(f"{name} survived the seeds {seeds} of {profile}: tidelog sim mutants")
