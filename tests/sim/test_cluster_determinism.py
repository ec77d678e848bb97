"""A run of a whole cluster depends on its seed alone.

Each seed alone, in a batch after others, in a reversed batch, in another process, under other
PYTHONHASHSEEDs: equal trace hashes.
"""

from __future__ import annotations

import pytest
from tests.sim.other_process import hashes_of

from tidelog.sim.run import run_seed

SEEDS = list(range(3, 23))
MODULE = "tests.sim.cluster_hashes"


@pytest.fixture(scope="module")
def hashes() -> dict[int, str]:
    return {seed: run_seed(seed).trace_hash for seed in SEEDS}


def test_different_seeds_give_different_runs(hashes: dict[int, str]) -> None:
    assert len(dict.fromkeys(hashes.values())) == len(SEEDS)


def test_a_seed_gives_the_same_run_in_a_reversed_batch(hashes: dict[int, str]) -> None:
    assert {seed: run_seed(seed).trace_hash for seed in reversed(SEEDS)} == hashes


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_a_seed_gives_the_same_run_in_another_process(
    hashes: dict[int, str], hash_seed: str
) -> None:
    assert hashes_of(MODULE, SEEDS, hash_seed) == hashes


@pytest.mark.parametrize("seed", SEEDS[::5])
def test_a_seed_gives_the_same_run_alone(hashes: dict[int, str], seed: int) -> None:
    assert hashes_of(MODULE, [seed], "99") == {seed: hashes[seed]}
