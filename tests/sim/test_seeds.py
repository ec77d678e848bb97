"""Whole clusters under faults: nothing that must hold is violated, and it was worth looking.

A seed of each profile here, and the seeds that found something last. `make soak` runs more of them,
all known seeds, and fresh ones of all profiles for as long as it is given. Long searches are
`tidelog sim run --seeds A..B`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sim.runs import result_of
from tests.support.mutants.kills import WHOLE_RUNS

from tidelog.sim.faults import KINDS
from tidelog.sim.known_seeds import KnownSeed, read_seeds
from tidelog.sim.profiles import PROFILES, STARTING_POINTS, SWARM, all_named
from tidelog.sim.results import Totals
from tidelog.sim.run import MIXED, SeedRun, profile_of, run_seed
from tidelog.sim.swarm import world_of
from tidelog.sim.workload.administrator import VALUES

KNOWN = Path(__file__).with_name("known_seeds.txt")
RARE = Path(__file__).with_name("rare_seeds.txt")
#: So many known seeds of the end of their list are played by every run. Brokers change, and then a
#: seed plays something else: the older it is, the more it is a seed as any other.
NEWEST = 8
DEFAULT_SEEDS = range(1000, 1008)
FURTHER_SEEDS = range(1008, 1030)
SOUND = list(PROFILES)
OTHER_PROFILES = [name for name in SOUND if name != "default"]
#: Seeds of the swarm besides the one that every profile has: each is another world.
SWARM_SEEDS = range(1, 4)
#: Seeds of the swarm in which the only member of an ISR loses unsynced data and leads again.
LAST_REPLICAS = tuple(seed for profile, seed in WHOLE_RUNS if profile == SWARM)
OTHER_SEEDS = [
    pytest.param(profile, seed, marks=[pytest.mark.soak] if seed else [])
    for profile in OTHER_PROFILES
    for seed in range(2)
] + [
    pytest.param(name, seed, marks=pytest.mark.soak)
    for name in STARTING_POINTS
    for seed in range(2)
]


def known_seeds(path: Path = KNOWN) -> list[KnownSeed]:
    return read_seeds(path.read_text().splitlines(), str(path), all_named(), KINDS)


def newest_unmarked() -> list[Any]:
    """The known seeds: the newest for every run, the others for a soak."""
    known = known_seeds()
    return [
        pytest.param(
            each,
            id=f"{each.profile}-{each.seed}",
            marks=[] if number >= len(known) - NEWEST else [pytest.mark.soak],
        )
        for number, each in enumerate(known)
    ]


def complain(profile: str, seed: int, violation: str, recent: list[str]) -> str:
    story = "\n".join(recent[-40:])
    return f"{violation}\n{story}\ntidelog sim replay {seed} --profile {profile} --story"


@pytest.fixture(scope="module")
def totals() -> Iterator[Totals]:
    yield Totals()


@pytest.mark.parametrize("seed", DEFAULT_SEEDS)
def test_nothing_is_violated(seed: int, totals: Totals) -> None:
    result = run_seed(seed)
    totals.add(result)
    assert not result.violation, complain("default", seed, result.violation, result.recent)


@pytest.mark.soak
@pytest.mark.parametrize("seed", FURTHER_SEEDS)
def test_nothing_is_violated_in_further_seeds(seed: int) -> None:
    result = run_seed(seed)
    assert not result.violation, complain("default", seed, result.violation, result.recent)


def test_it_was_worth_looking(totals: Totals) -> None:
    if totals.runs < len(DEFAULT_SEEDS):
        pytest.skip("counts the runs above, which were not all made")
    assert totals.shortfalls() == []
    never = [kind for kind in PROFILES["default"].weights if kind not in totals.faults]
    assert never == []


@pytest.mark.parametrize(("profile", "seed"), OTHER_SEEDS)
def test_nothing_is_violated_under_other_profiles(profile: str, seed: int) -> None:
    result = result_of(seed, profile)
    assert not result.violation, complain(profile, seed, result.violation, result.recent)


@pytest.mark.parametrize("seed", SWARM_SEEDS)
def test_nothing_is_violated_in_worlds_of_the_swarm(seed: int) -> None:
    result = result_of(seed, SWARM)
    assert not result.violation, complain(SWARM, seed, result.violation, result.recent)
    assert result.world


def test_topics_were_altered_and_grew_on_the_way() -> None:
    run = SeedRun(0, "topic_changes")
    assert not run.run().violation
    churn = run.churn
    assert churn is not None
    assert churn.alterations > 8 and churn.partitions > 1
    assert sorted(churn.values) == sorted(VALUES) and churn.is_done


@pytest.mark.parametrize("known", newest_unmarked())
def test_a_seed_that_once_found_something_finds_nothing_now(known: KnownSeed) -> None:
    if known.faults:
        result = run_seed(known.seed, known.profile, chosen=known.faults)
    else:
        result = result_of(known.seed, known.profile)
    assert not result.violation, complain(
        known.profile, known.seed, result.violation, result.recent
    )


@pytest.mark.parametrize("rare", known_seeds(RARE), ids=lambda rare: rare.cause)
def test_a_rare_state_is_reached(rare: KnownSeed) -> None:
    result = result_of(rare.seed, rare.profile)
    assert not result.violation, complain(rare.profile, rare.seed, result.violation, result.recent)
    assert result.marks.get(rare.cause), f"look for another seed that reaches {rare.cause}"


def test_seeds_of_all_profiles_are_mixed() -> None:
    assert len(OTHER_PROFILES) > 20
    assert sorted(dict.fromkeys(map(profile_of, range(1_000)))) == sorted(SOUND)
    first, again = (
        run_seed(3, profile, limit_events=5_000).trace_hash for profile in (MIXED, profile_of(3))
    )
    assert first == again


def test_the_last_replica_standing_may_lose_unsynced_data_and_lead_again() -> None:
    for seed in LAST_REPLICAS:
        assert world_of(seed).scenario == "last_replica_standing"
        result = result_of(seed, SWARM)
        assert result.violation == ""
        assert result.faults["scenario"]


def test_k_members_lead_while_a_host_stays_away() -> None:
    for seed in range(2):
        result = result_of(seed, "a_host_stays_away")
        assert result.violation == ""
        assert result.counters["leader elections"] > 0
