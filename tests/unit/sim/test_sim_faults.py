"""Kinds of faults: what profiles weigh is registered, and a run can be repeated with less of it."""

from __future__ import annotations

import pytest

from tidelog.sim.broker_settings import BrokerSettings
from tidelog.sim.faults import KINDS, SCENARIOS, Faults
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.profiles import Pace, Profile, all_named, named
from tidelog.sim.seeds import stream
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.simulator import Simulator

#: Faults that leave a line each and need no broker that runs.
LINKS = Profile(
    "links",
    weights={"cut_one_way": 1.0, "cut_two_ways": 1.0, "slow_link": 1.0},
    pace=Pace(left_out=0.0, interval_ms=(50, 100)),
)


@pytest.mark.parametrize("name", all_named())
def test_a_profile_weighs_kinds_and_names_a_scenario_that_are_registered(name: str) -> None:
    profile = named(name)
    assert set(profile.weights) <= set(KINDS)
    assert not profile.scenario or profile.scenario in SCENARIOS


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_says_in_one_line_what_it_does(name: str) -> None:
    description = KINDS[name].description
    assert description.endswith(".")
    assert "\n" not in description


def _played(profile: Profile, leave_out: tuple[str, ...] = ()) -> list[str]:
    """What faults note in three seconds over brokers that do not run."""
    simulator = Simulator(7)
    cluster = SimCluster(simulator, 3, BrokerSettings())
    faults = Faults(cluster, ["client101"], stream(7, "faults"), profile, leave_out=leave_out)
    lines: list[str] = []
    simulator.trace.listener = lines.append
    faults.begin()
    simulator.run_until(3 * NS_PER_S)
    simulator.close()
    return [line.partition(" fault ")[2] for line in lines if " fault " in line]


def test_leaving_out_a_kind_moves_no_other() -> None:
    whole = _played(LINKS)
    assert len(whole) > 10
    assert any(line.startswith("slow") for line in whole)
    assert _played(LINKS, ("slow_link",)) == [x for x in whole if "slow" not in x]


def test_a_kind_that_is_none_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="no kinds of faults to leave out: slow_lnik; there are"):
        _played(LINKS, ("slow_lnik",))
