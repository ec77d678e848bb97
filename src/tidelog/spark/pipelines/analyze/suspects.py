"""Brokers with more ISR departures than chance explains; computed without Spark.

A broker takes part in an ISR departure as the follower that left, or as the leader that removed the
follower. Departures of one broker for one cause within a short time are one incident, because a
dead broker leaves a thousand ISRs at once. Under the null hypothesis each incident strikes a broker
in proportion to its replicas (or, as a leader, to the time that it led). A broker is a suspect if
the probability of at least its number of incidents is small, given the number of brokers.

A suspect is a broker to inspect first; the test does not explain its departures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Final

from tidelog.core.dataclass import dataclass

#: Largest gap in seconds between ISR departures of the same incident.
INCIDENT_GAP_S: Final = 10
#: Causes of ISR departures that an operator brings about.
PLANNED: Final = ("shutdown", "moved")
#: Causes of ISR departures that the leader judged by itself; a leader that is slow itself may
#: report such causes for good followers.
JUDGED_BY_LEADER: Final = ("slow", "no_fetch", "epoch", "unknown", "leader_read")
#: Causes of ISR departures for which the follower is not responsible.
OF_LEADER: Final = ("leader_read",)
#: Significance level of a suspect, before it is divided by the number of brokers.
SIGNIFICANCE: Final = 0.05
#: Minimum number of incidents of a suspect; fewer incidents prove nothing.
MIN_INCIDENTS: Final = 3
_MIN_LIFT: Final = 1.5


class DepartureRole(StrEnum):
    """The role of a broker in an ISR departure: the follower that left, or the leader."""

    FOLLOWER = "follower"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class DepartureCount:
    """Departures of a broker from ISRs of one leader for one cause in one second.

    If the broker left the ISR because it died as the leader, `leader` is this broker.
    """

    broker: int
    leader: int
    cause: str
    second: int
    departures: int
    absent_ms: int


@dataclass(frozen=True, slots=True)
class Incidents:
    """Counts for one broker, role and cause: ISR departures, and the incidents that they form."""

    role: DepartureRole
    broker: int
    cause: str
    departures: int
    incidents: int
    #: Time until the replica returned to the ISR, summed over partitions.
    absent_ms: int = 0


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A broker's incidents in one role, compared with the number that chance explains.

    `expected` is the number by the broker's share of all replicas, or of the time as leader.
    """

    role: DepartureRole
    broker: int
    incidents: int
    departures: int
    expected: float
    #: Probability of `incidents` or more if all brokers were equally reliable.
    chance: float
    main_cause: str
    is_suspect: bool


def incidents_of(counts: Iterable[DepartureCount], role: DepartureRole) -> list[Incidents]:
    """Return the incidents of each broker in the given role, in order of broker and cause.

    In the role of leader, a broker's incidents are departures of followers from ISRs that it led.
    """
    grouped: dict[tuple[int, str], list[DepartureCount]] = {}
    for each in counts:
        broker = each.broker if role is DepartureRole.FOLLOWER else each.leader
        if role is DepartureRole.LEADER and (each.leader == each.broker or each.leader < 0):
            continue
        grouped.setdefault((broker, each.cause), []).append(each)
    return [
        Incidents(
            role,
            broker,
            cause,
            sum(each.departures for each in own),
            _incidents({each.second for each in own}),
            sum(each.absent_ms for each in own),
        )
        for (broker, cause), own in sorted(grouped.items())
    ]


def _says_anything(found: Incidents) -> bool:
    """Return whether the departures may be the fault of `found.broker` in the role `found.role`."""
    if found.role is DepartureRole.LEADER:
        return found.cause in JUDGED_BY_LEADER
    return found.cause not in OF_LEADER


def _incidents(seconds: Iterable[int]) -> int:
    """Count incidents: departures at most INCIDENT_GAP_S seconds apart belong to one incident."""
    ordered = sorted(seconds)
    return 1 + sum(after - before > INCIDENT_GAP_S for before, after in pairwise(ordered))


def suspicions(
    found: Iterable[Incidents], shares: Mapping[DepartureRole, Mapping[int, float]]
) -> list[Suspicion]:
    """Return every broker with unplanned incidents; the least probable number of incidents first.

    `shares` has, by role, a broker's share of all replicas or of all time as leader.
    """
    by_broker: dict[tuple[DepartureRole, int], list[Incidents]] = {}
    totals = dict.fromkeys(DepartureRole, 0)
    for each in found:
        if each.cause in PLANNED or not _says_anything(each):
            continue
        by_broker.setdefault((each.role, each.broker), []).append(each)
        totals[each.role] += each.incidents
    result: list[Suspicion] = []
    for (role, broker), own in by_broker.items():
        share = shares.get(role, {}).get(broker, 0.0)
        incidents = sum(each.incidents for each in own)
        expected = totals[role] * share
        chance = at_least(incidents, totals[role], share)
        brokers = max(1, len(shares.get(role, {})))
        result.append(
            Suspicion(
                role=role,
                broker=broker,
                incidents=incidents,
                departures=sum(each.departures for each in own),
                expected=expected,
                chance=chance,
                main_cause=max(own, key=lambda each: (each.incidents, each.cause)).cause,
                is_suspect=incidents >= MIN_INCIDENTS
                and incidents >= _MIN_LIFT * expected
                and chance <= SIGNIFICANCE / brokers,
            )
        )
    return sorted(result, key=lambda each: (each.chance, each.role, each.broker))


def normal(weights: Mapping[int, float]) -> dict[int, float]:
    """Return each weight divided by the sum of all weights; empty if the sum is zero."""
    total = sum(weights.values())
    return {broker: weight / total for broker, weight in weights.items()} if total else {}


def at_least(count: int, trials: int, share: float) -> float:
    """Return the probability of `count` or more hits in `trials` trials of probability `share`."""
    if count <= 0:
        return 1.0
    if share <= 0.0:
        return 0.0
    if share >= 1.0:
        return 1.0
    # The binomial tail is computed in logarithms, because many trials would underflow.
    terms = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(share)
        + (trials - k) * math.log1p(-share)
        for k in range(count, trials + 1)
    ]
    largest = max(terms, default=-math.inf)
    if largest == -math.inf:
        return 0.0
    return min(1.0, math.exp(largest) * math.fsum(math.exp(each - largest) for each in terms))
