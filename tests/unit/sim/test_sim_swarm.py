"""The swarm: what its seeds draw, without a run of any of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tidelog.sim import swarm
from tidelog.sim.broker_settings import BrokerSettings
from tidelog.sim.faults import KINDS, SCENARIOS
from tidelog.sim.phases import PHASES
from tidelog.sim.profiles import PROFILES, SWARM, Profile
from tidelog.sim.run import SeedRun
from tidelog.sim.swarm import (
    BASES,
    CHURN_NEEDS,
    SCENARIO_NEEDS,
    described,
    has_drawn,
    is_strict,
    world_of,
)
from tidelog.sim.workload.churn_kinds import CHURN

SEEDS = range(1_500)
WORLDS = [world_of(seed) for seed in SEEDS]
BENT = [world for world in WORLDS if world.base]
DRAWN = [world for world in WORLDS if not world.base]
#: Other processes hash texts in another way.
_PRINTING = (
    "from tidelog.sim.swarm import described, world_of\n"
    "for seed in range(40): print(described(world_of(seed)))"
)


def test_a_seed_draws_the_same_world_in_another_process() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    words = [sys.executable, "-c", _PRINTING]
    printed = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.splitlines() == [described(world) for world in WORLDS[:40]]
    assert len(dict.fromkeys(map(described, WORLDS))) == len(WORLDS)


def test_a_run_plays_the_world_of_its_seed() -> None:
    run = SeedRun(3, SWARM)
    assert run.profile == WORLDS[3]
    assert sorted(run.cluster.brokers) == list(range(1, WORLDS[3].brokers + 1))


def test_worlds_without_a_base_have_about_half_of_the_faults_and_all_of_them_together() -> None:
    busy = [world for world in DRAWN if not world.scenario and "topics_mislaid" not in world.churn]
    kinds = Counter(kind for world in busy for kind in world.weights)
    assert sorted(kinds) == sorted(KINDS)
    plain = [world for world in busy if world.log_dirs == (1,)]
    sizes = [len(world.weights) for world in plain]
    possible = sum(1 for kind in KINDS.values() if kind.family != "log_dirs")
    assert 0.45 < sum(sizes) / len(sizes) / possible < 0.55
    assert max(sizes) - min(sizes) > 10


def test_every_scenario_phase_and_kind_of_churn_is_drawn() -> None:
    assert sorted({world.scenario for world in WORLDS} - {""}) == sorted(SCENARIOS)
    assert {world.phase for world in WORLDS} - {""} == set(PHASES)
    drawn = {kind for world in WORLDS for kind in world.churn}
    only_named = {name for name, kind in CHURN.items() if not kind.is_drawn}
    assert only_named <= drawn
    assert set(CHURN_NEEDS) <= only_named
    assert {len(world.log_dirs) for world in DRAWN} >= {1, 2}
    assert {world.brokers for world in DRAWN} == {3, 4, 5}


def test_worlds_have_settings_that_brokers_accept() -> None:
    for world in WORLDS:
        settings = BrokerSettings(profile=world, properties=dict(world.properties))
        assert settings.of(1).broker_id == 1


def test_what_a_scenario_needs_is_in_every_world_that_plays_it() -> None:
    for world in DRAWN:
        for needs in (
            *(SCENARIO_NEEDS[name] for name in [world.scenario] if name),
            *(CHURN_NEEDS[name] for name in world.churn),
        ):
            if needs.only:
                assert set(world.weights) <= set(needs.only)
            if needs.down_ms and world.scenario in SCENARIO_NEEDS:
                assert world.pace.down_ms == needs.down_ms
        if world.scenario:
            name = world.scenario
            assert {
                getattr(world, key) == value for key, value in SCENARIO_NEEDS[name].changes.items()
            } <= {True}, name


def test_a_base_is_bent_and_keeps_what_its_checkers_assume() -> None:
    assert {world.base for world in BENT} == set(BASES)
    for world in BENT:
        base = BASES[world.base]
        assert set(world.weights) <= set(base.weights)
        assert world.properties.items() >= base.properties.items()
        if is_strict(base):
            assert world.properties == base.properties
        assert (world.scenario, world.churn) == (base.scenario, base.churn)
    assert any(world.weights != BASES[world.base].weights for world in BENT)


def test_a_base_that_goes_takes_only_its_own_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    left = {name: base for name, base in BASES.items() if name != "pauses"}
    monkeypatch.setattr(swarm, "BASES", left)
    for seed, before in zip(SEEDS[:300], WORLDS, strict=False):
        after = world_of(seed)
        assert (after == before) == (before.base != "pauses")


def test_a_world_has_all_that_words_name_or_not() -> None:
    world = Profile("x", faults="stop 2", base="pauses", scenario="left_behind", churn=("crowds",))
    assert has_drawn(world, "") and has_drawn(world, "stop crowds pauses left_behind")
    assert not has_drawn(world, "stop crash_any")


def test_a_description_names_what_differs_from_the_default_profile() -> None:
    assert described(Profile(SWARM)) == ""
    text = described(Profile("x", faults="crash_any 2", config="a.b=1", brokers=5))
    assert text == "weights crash_any 2; properties a.b 1; brokers 5"
    assert PROFILES[SWARM].base == ""
