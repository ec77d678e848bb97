"""Scenarios of leaderships and elections, in runs of their profiles: what each is for happens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from tests.sim.runs import leaders_of, result_of
from tests.support.mutants.kills import WHOLE_RUNS

from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.profiles import SWARM
from tidelog.sim.run import SeedRun
from tidelog.sim.swarm import world_of

SEEDS = range(3)


#: Seeds of the swarm that play a scenario, in the order in which they are tried.
WORLDS = {
    "brokers_catch_up": (449,),
    "missing_directory": (5655,),
    "older_disk_returns": (3617,),
    "two_terms_lost": (424,),
    "unheard_restarts": (1164,),
    "unlucky_elections": (4025,),
    "unregistered_fetches": (4827,),
}


def reached(profile: str, seeds: Sequence[int] = SEEDS, **wanted: int) -> dict[str, int]:
    """Play seeds of a profile until they have reached the wanted states, each as often as named.

    Return how often each was reached. Every seed must play the profile's scenario.
    """
    found: dict[str, int] = {}
    for number, seed in enumerate(seeds, 1):
        result = result_of(seed, profile)
        assert not result.violation, f"seed {seed} of {profile}: {result.violation}"
        for name, count in {"scenario": 0, **result.faults, **result.marks}.items():
            found[name] = found.get(name, 0) + count
        assert found["scenario"] >= number
        if all(found.get(name, 0) >= count for name, count in wanted.items()):
            return found
    raise AssertionError(f"{wanted} wanted of {profile}, reached: {found}")


def reached_by(scenario: str, **wanted: int) -> dict[str, int]:
    """Play the seeds of the swarm that draw a scenario, as `reached` does."""
    seeds = WORLDS[scenario]
    assert {world_of(seed).scenario for seed in seeds} == {scenario}
    return reached(SWARM, seeds, **wanted)


def returns(profile: str, seed: int) -> int:
    """How often a leader was followed by another one and then by itself again."""
    assert not result_of(seed, profile).violation
    return sum(
        first == third
        for led in leaders_of(seed, profile).values()
        for first, third in zip(led, itertools.islice(led, 2, None), strict=False)
    )


@pytest.mark.rule("V31")
def test_leader_returns_makes_a_leader_again_of_who_led_before_the_last() -> None:
    assert returns("leader_returns", 0) >= 5


def test_unheard_of_return_makes_followers_ask_under_an_epoch_that_is_over() -> None:
    assert returns("unheard_of_return", 0) >= 5
    reached("unheard_of_return", follower_behind_leader_epoch=50)


def test_early_follower_asks_leaders_that_have_not_heard_yet() -> None:
    reached("early_follower", follower_ahead_of_leader_epoch=50)


@pytest.mark.rule("V32")
def test_two_terms_lost_are_cut_off_at_once() -> None:
    reached_by("two_terms_lost", truncated_over_two_epochs=1)


@pytest.mark.rule("D3")
def test_missing_directory_leaves_the_last_member_without_its_replica() -> None:
    reached_by("missing_directory", replica_lost=1)


@pytest.mark.rule("V3", "S2")
def test_unlucky_elections_depose_who_writes_and_elect_who_does_not_know() -> None:
    reached_by(
        "unlucky_elections",
        deposed_while_writing=1,
        election_won_unknowingly=1,
        controller_node_left_over=1,
    )


@pytest.mark.rule("V42")
def test_unanswered_controllers_are_noticed_in_office_and_before() -> None:
    reached("unanswered_controllers", controller_stalled=5, controller_node_left_over=2)


@pytest.mark.rule("V4")
def test_sessions_end_early_ends_them_in_starts_and_registrations() -> None:
    reached(
        "short_sessions", scenario=30, session_lost_during_start=3, hanging_directory_given_up=1
    )


@pytest.mark.rule("V46")
def test_brokers_catch_up_before_they_lead_again() -> None:
    reached_by("brokers_catch_up", leaderships_wait_for_catch_up=1)


@pytest.mark.rule("V13", "A3")
def test_left_behind_makes_leaders_of_who_is_not_in_sync_and_they_tell() -> None:
    """In the end none is recovering (`Cluster.health`), and each event is true (the checker)."""
    elected: dict[bool, int] = {}
    told = 0
    for seed in SEEDS:
        run = SeedRun(seed, "unclean_elections")

        def note(_: PublishedPartition | None, state: PublishedPartition) -> None:
            elected[state.is_recovering] = elected.get(state.is_recovering, 0) + 1

        run.cluster.published.on_state.append(note)
        assert not run.run().violation
        assert run.cluster.events is not None
        told += run.cluster.events.counts.get("unclean_election", 0)
        if min(elected.get(True, 0), told) >= 3:
            return
    raise AssertionError(f"{elected[True]} states that recover, {told} unclean elections told")


@pytest.mark.rule("V80")
def test_what_happens_is_told_of_every_kind_that_faults_bring_about() -> None:
    often = ("leader_change", "isr_change", "first_fetch", "takeover")
    phases = ("connect", "truncate", "first_fetch", "acknowledge")
    some = ("failover", "session_loss", "registration", "controller_election")
    wanted = dict.fromkeys(often, 50) | dict.fromkeys(some, 5)
    wanted |= {f"takeover/{phase}": 5 for phase in phases}
    told: dict[str, int] = {}
    for seed in SEEDS:
        run = SeedRun(seed, "told_events")
        assert not run.run().violation
        assert run.cluster.events is not None
        for kind, count in run.cluster.events.counts.items():
            told[kind] = told.get(kind, 0) + count
        if all(told.get(kind, 0) >= count for kind, count in wanted.items()):
            return
    raise AssertionError(f"{wanted} wanted, told: {told}")


@pytest.mark.rule("A12")
def test_rolling_bumps_restart_brokers_while_leaders_write_themselves() -> None:
    assert ("mixed_levels", SEEDS[0]) in WHOLE_RUNS
    reached("mixed_levels", direct_isr_changes_read=10)


@pytest.mark.rule("A12")
def test_leaders_that_write_themselves_lose_answers_and_find_their_changes_made() -> None:
    found: dict[str, int] = {}
    for seed in SEEDS:
        result = result_of(seed, "direct")
        assert not result.violation, f"seed {seed} of direct: {result.violation}"
        for name, count in result.marks.items():
            found[name] = found.get(name, 0) + count
        if "direct_isr_change_unknown" in found and "direct_isr_change_found_made" in found:
            return
    raise AssertionError(f"no answer was lost of a change that was made: {found}")


@pytest.mark.rule("A12", "V10")
def test_members_restart_unheard_of_while_their_leaders_write_the_node() -> None:
    reached_by("unheard_restarts")


@pytest.mark.rule("V68")
def test_damaged_member_makes_brokers_ask_to_leave_as_followers() -> None:
    """The first request of such a broker comes too late."""
    found = reached("damaged_leaders", range(7, 9), damage_truncated=1, damage_reported=2)
    assert found["damage_reported"] > found["damage_truncated"]


@pytest.mark.rule("E3")
def test_older_disk_returns_to_brokers_that_have_been_in_sync_since() -> None:
    reached_by("older_disk_returns")


@pytest.mark.rule("V63")
def test_unregistered_fetches_come_from_followers_whose_session_is_over() -> None:
    reached_by("unregistered_fetches")


@pytest.mark.rule("E8")
def test_older_store_returns_and_brokers_find_out() -> None:
    reached("older_stores", store_went_back=1, cold_start_awaits_brokers=1)
