"""The same seed gives the same run: alone, in a batch, in a reversed one, in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.small_world import trace_hash

from tidelog.sim.world import CollectorPaused

SEEDS = [3, 17, 4242]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hashes() -> dict[int, str]:
    with CollectorPaused():
        return {seed: trace_hash(seed) for seed in SEEDS}


def in_another_process(seeds: list[int], hash_seed: str) -> dict[int, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.small_world", *map(str, seeds)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
    )
    return {int(seed): value for seed, value in map(str.split, done.stdout.splitlines())}


def test_different_seeds_give_different_runs(hashes: dict[int, str]) -> None:
    assert len(set(hashes.values())) == len(SEEDS)


def test_a_seed_gives_the_same_run_in_a_reversed_batch(hashes: dict[int, str]) -> None:
    with CollectorPaused():
        assert {seed: trace_hash(seed) for seed in reversed(SEEDS)} == hashes


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_a_seed_gives_the_same_run_in_another_process(
    hashes: dict[int, str], hash_seed: str
) -> None:
    assert in_another_process(SEEDS, hash_seed) == hashes


def test_a_seed_gives_the_same_run_alone(hashes: dict[int, str]) -> None:
    assert in_another_process(SEEDS[1:2], "99") == {SEEDS[1]: hashes[SEEDS[1]]}
