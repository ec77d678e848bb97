"""Suspects: more incidents than a broker's share explains."""

from __future__ import annotations

import math

import pytest

from tidelog.spark.pipelines.analyze.suspects import (
    DepartureCount,
    DepartureRole,
    Incidents,
    at_least,
    incidents_of,
    normal,
    suspicions,
)

EVEN = {role: dict.fromkeys((1, 2, 3, 4), 0.25) for role in DepartureRole}


def follower(broker: int, incidents: int, cause: str = "slow") -> Incidents:
    return Incidents(DepartureRole.FOLLOWER, broker, cause, 10 * incidents, incidents)


@pytest.mark.parametrize(("trials", "share"), [(1, 0.5), (7, 0.25), (12, 0.9), (20, 1 / 3)])
def test_the_tail_is_that_of_the_binomial_distribution(trials: int, share: float) -> None:
    for count in range(trials + 1):
        exact = sum(
            math.comb(trials, k) * share**k * (1 - share) ** (trials - k)
            for k in range(count, trials + 1)
        )
        assert at_least(count, trials, share) == pytest.approx(exact)


def test_the_tail_at_its_ends() -> None:
    assert at_least(0, 10, 0.0) == 1.0
    assert at_least(1, 10, 0.0) == 0.0
    assert at_least(10, 10, 1.0) == 1.0
    assert at_least(11, 10, 0.5) == 0.0
    assert 0 < at_least(4_000, 10_000, 0.25) < 1e-200


def test_the_broker_with_most_incidents_is_a_suspect() -> None:
    found = suspicions([follower(3, 9), follower(1, 1), follower(2, 1)], EVEN)
    assert [each.broker for each in found if each.is_suspect] == [3]
    first = found[0]
    assert (first.broker, first.incidents, first.departures) == (3, 9, 90)
    assert first.expected == pytest.approx(11 / 4)
    assert first.incidents / first.expected == pytest.approx(36 / 11)


def test_no_suspect_where_incidents_are_even_or_few() -> None:
    even = [follower(broker, 5) for broker in (1, 2, 3, 4)]
    assert not any(each.is_suspect for each in suspicions(even, EVEN))
    assert not any(each.is_suspect for each in suspicions([follower(2, 2)], EVEN))


def test_a_broker_with_most_replicas_is_expected_to_have_most_incidents() -> None:
    shares = {DepartureRole.FOLLOWER: {1: 0.8, 2: 0.1, 3: 0.1}}
    assert not any(each.is_suspect for each in suspicions([follower(1, 9)], shares))
    assert suspicions([follower(2, 9)], shares)[0].is_suspect


def test_shutdowns_are_no_incidents() -> None:
    assert suspicions([follower(1, 50, "shutdown")], EVEN) == []
    found = suspicions([follower(1, 50, "shutdown"), follower(2, 3, "session")], EVEN)
    assert [(each.broker, each.incidents, each.main_cause) for each in found] == [(2, 3, "session")]


def test_a_leader_is_suspected_for_what_it_judged_itself() -> None:
    found = suspicions(
        [
            Incidents(DepartureRole.LEADER, 4, "slow", 30, 6),
            Incidents(DepartureRole.LEADER, 4, "no_fetch", 9, 2),
            # A dead follower says nothing about its leader.
            Incidents(DepartureRole.LEADER, 1, "session", 500, 50),
        ],
        EVEN,
    )
    assert [(each.role, each.broker, each.incidents) for each in found] == [
        (DepartureRole.LEADER, 4, 8)
    ]
    assert found[0].is_suspect
    assert found[0].main_cause == "slow"


def test_departures_close_together_are_one_incident() -> None:
    counts = [
        DepartureCount(2, 1, "slow", 100, 40, 1_000),
        DepartureCount(2, 3, "slow", 109, 5, 500),
        DepartureCount(2, 1, "slow", 120, 1, 10),
        DepartureCount(2, 1, "disk", 121, 1, 20),
        # The leader itself died: no follower fell behind there.
        DepartureCount(3, 3, "session", 100, 7, 70),
    ]
    assert incidents_of(counts, DepartureRole.FOLLOWER) == [
        Incidents(DepartureRole.FOLLOWER, 2, "disk", 1, 1, 20),
        Incidents(DepartureRole.FOLLOWER, 2, "slow", 46, 2, 1_510),
        Incidents(DepartureRole.FOLLOWER, 3, "session", 7, 1, 70),
    ]
    assert incidents_of(counts, DepartureRole.LEADER) == [
        Incidents(DepartureRole.LEADER, 1, "disk", 1, 1, 20),
        Incidents(DepartureRole.LEADER, 1, "slow", 41, 2, 1_010),
        Incidents(DepartureRole.LEADER, 3, "slow", 5, 1, 500),
    ]


def test_shares_are_parts_of_one() -> None:
    assert normal({1: 3, 2: 1}) == {1: 0.75, 2: 0.25}
    assert normal({1: 0}) == {}
