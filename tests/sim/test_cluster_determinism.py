"""A run of a whole cluster depends on its seed alone, under every profile.

Each seed alone, in a batch after others, in a reversed batch, in another process, under other
PYTHONHASHSEEDs: equal trace hashes. `make test` compares the runs of `test_seeds.py` with their
beginnings in a reversed batch of another process; `make soak` compares runs up to their last
offset, and what differs by one of these alone.
"""

from __future__ import annotations

import pytest
from tests.sim.cluster_hashes import BEGINNING, SHORT, hash_of
from tests.sim.other_process import hashes_of, lines_of
from tests.sim.runs import result_of
from tests.support.mutants.kills import SOUND_SEED

from tidelog.sim.profiles import PROFILES
from tidelog.sim.run import profile_of, run_seed

SOUND = list(PROFILES)
#: Odd ones have other profiles than the default one, in turns.
SEEDS = [0, *range(1, 2 * len(SOUND) - 1, 2)]
MODULE = "tests.sim.cluster_hashes"
ALONE = [
    pytest.param(seed, marks=[] if seed in SEEDS[:40:20] else [pytest.mark.soak])
    for seed in SEEDS[::5]
]


@pytest.fixture(scope="module")
def hashes() -> dict[int, str]:
    return {seed: hash_of(seed) for seed in SEEDS}


def test_many_profiles_are_looked_at() -> None:
    assert len(SEEDS) >= 20
    assert sorted(dict.fromkeys(map(profile_of, SEEDS))) == sorted(SOUND)


def test_different_profiles_give_different_runs() -> None:
    runs = [result_of(SOUND_SEED, profile).trace_hash for profile in SOUND]
    assert len(dict.fromkeys(runs)) == len(SOUND)


def test_a_run_begins_the_same_in_a_reversed_batch_of_another_process() -> None:
    numbers = [str(number) for number in reversed(range(len(SOUND)))]
    differing, shortest = [], 1_000
    for number, hashes in lines_of(MODULE, [BEGINNING, *numbers], "4711"):
        there, profile = hashes.split(","), SOUND[int(number)]
        here = result_of(SOUND_SEED, profile).block_hashes
        shortest = min(shortest, len(there))
        differing += [profile] if here[: len(there)] != there else []
    assert (differing, shortest >= 5) == ([], True)


@pytest.mark.soak
def test_different_seeds_give_different_runs(hashes: dict[int, str]) -> None:
    assert len(dict.fromkeys(hashes.values())) == len(SEEDS)


@pytest.mark.soak
def test_a_seed_gives_the_same_run_in_a_reversed_batch(hashes: dict[int, str]) -> None:
    assert {seed: hash_of(seed) for seed in reversed(SEEDS)} == hashes


@pytest.mark.soak
def test_a_seed_gives_the_same_run_in_a_reversed_batch_of_another_process(
    hashes: dict[int, str],
) -> None:
    assert hashes_of(MODULE, SEEDS[::-1], "0") == hashes


@pytest.mark.soak
def test_a_seed_gives_the_same_run_in_another_process(hashes: dict[int, str]) -> None:
    assert hashes_of(MODULE, SEEDS, "4711") == hashes


@pytest.mark.parametrize("seed", ALONE)
def test_a_seed_gives_the_same_run_alone(seed: int) -> None:
    assert hashes_of(MODULE, [seed], "99") == {seed: hash_of(seed)}


@pytest.mark.parametrize(("seed", "profile"), [(4, "default"), (5, "jbod")])
def test_a_short_run_is_the_whole_one_until_its_faults_end(seed: int, profile: str) -> None:
    whole: list[str] = []
    short: list[str] = []
    events = run_seed(seed, profile, listener=short.append, only=SHORT).events
    # The whole run has at least as many events, and the same ones until the faults end.
    run_seed(seed, profile, listener=whole.append, limit_events=events)
    end_ns = next(time_of(line) for line in short if " -1 faults ended" in line)
    before = [line for line in short if time_of(line) < end_ns]
    assert before == [line for line in whole if time_of(line) < end_ns]
    assert len(before) > 1_000


def time_of(line: str) -> int:
    return int(line.partition(" ")[0])
