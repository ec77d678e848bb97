"""The same seed gives the same run: alone, in a batch, in a reversed one, in another process."""

from __future__ import annotations

import pytest
from tests.sim.other_process import hashes_of
from tests.sim.three_nodes import trace_hash

from tidelog.sim.simulator import CollectorPaused

SEEDS = [3, 17, 4242]
MODULE = "tests.sim.three_nodes"


@pytest.fixture(scope="module")
def hashes() -> dict[int, str]:
    with CollectorPaused():
        return {seed: trace_hash(seed) for seed in SEEDS}


def test_different_seeds_give_different_runs(hashes: dict[int, str]) -> None:
    assert len(set(hashes.values())) == len(SEEDS)


def test_a_seed_gives_the_same_run_in_a_reversed_batch(hashes: dict[int, str]) -> None:
    with CollectorPaused():
        assert {seed: trace_hash(seed) for seed in reversed(SEEDS)} == hashes


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_a_seed_gives_the_same_run_in_another_process(
    hashes: dict[int, str], hash_seed: str
) -> None:
    assert hashes_of(MODULE, SEEDS, hash_seed) == hashes


def test_a_seed_gives_the_same_run_alone(hashes: dict[int, str]) -> None:
    assert hashes_of(MODULE, SEEDS[1:2], "99") == {SEEDS[1]: hashes[SEEDS[1]]}
