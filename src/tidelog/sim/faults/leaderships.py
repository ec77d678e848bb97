"""Scenarios in which leadership moves away and back while commands or records arrive late.

In one scenario, a leader starts without its log. Each scenario often brings about an order of
events that independent faults produce in one of thousands of seeds. All scenarios keep within the
fault budget: links are slow, sessions end, and power is lost only if the budget allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

from tidelog.sim.disk import Loss
from tidelog.sim.faults.context import (
    FaultContext,
    Scenario,
    Wait,
    both_ways,
    in_time,
    later_in_time,
)
from tidelog.sim.faults.disks import put_back, take_away
from tidelog.sim.faults.kinds import scenario, scenario_of_rounds
from tidelog.sim.faults.store import elect_preferred
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import STORE_HOST


class _Case(NamedTuple):
    """A partition whose replicas are all in sync; `preferred`, `second` and `third` are its
    replicas in the order of the assignment.
    """

    key: LogKey
    name: str
    leader: int
    preferred: int
    second: int
    third: int

    @property
    def replicas(self) -> tuple[int, int, int]:
        """All replicas, in the order of the assignment."""
        return self.preferred, self.second, self.third


def _healthy(context: FaultContext) -> list[_Case]:
    """Return the partitions in which all replicas are in sync."""
    published = context.cluster.published
    found = []
    for name, key, state in published.states():
        replicas = published.topics[name.topic].assignment[name.partition]
        if state is not None and state.leader >= 0 and sorted(state.isr) == sorted(replicas):
            first, second, third = replicas
            found.append(_Case(key, str(name), state.leader, first, second, third))
    return found


def _one_of(context: FaultContext, is_wanted: Callable[[_Case], object]) -> _Case | None:
    """Return a partition that `is_wanted` accepts, with all replicas in sync; None if none."""
    among = [case for case in _healthy(context) if is_wanted(case)]
    return context.draw.choice(among) if among else None


def _one_led_by_controller(
    context: FaultContext, is_wanted: Callable[[_Case], bool]
) -> Generator[float, None, _Case | None]:
    """Return a partition that `is_wanted` accepts and that the controller's broker leads.

    If the controller's broker leads none, end a leader's session, wait a moment and return None.
    """
    controller = context.controller()
    if controller is None:
        return None
    leader = controller.node_id
    case = _one_of(context, lambda it: it.leader == leader and is_wanted(it))
    if case is None:
        context.expire(context.leader())
        yield context.draw.uniform(300, 1_000)
    return case


def _until_leader(context: FaultContext, case: _Case, broker_id: int) -> Wait:
    """Wait until published state has the broker as leader."""
    states = context.cluster.published.partitions
    return in_time(lambda: case.key in states and states[case.key].leader == broker_id)


def _late(context: FaultContext, source: int, target: int, late_ms: float) -> None:
    """Delay the messages from one broker to another from now on; 0 ends the delay."""
    brokers = context.cluster.brokers
    hosts = brokers[source].node.host, brokers[target].node.host
    context.note(f"{hosts[0]}>{hosts[1]} {late_ms:.0f} ms late")
    context.cluster.simulator.network.slow_down(*hosts, int(late_ms * NS_PER_MS), 0)


def _cut_off_from_store(context: FaultContext, broker_id: int) -> list[tuple[str, str]]:
    """Cut a broker off from the store, and return the links to heal."""
    links = both_ways((context.cluster.brokers[broker_id].node.host, STORE_HOST))
    context.cut(links)
    return links


def _punctual(context: FaultContext, case: _Case) -> None:
    """End the delays of all links between the partition's replicas."""
    for source in case.replicas:
        for target in case.replicas:
            _late(context, source, target, 0)


@scenario_of_rounds(50, 400)
def leader_returns(context: FaultContext) -> Scenario:
    """Let a leader lose and regain its leadership before a follower reports its truncation.

    One follower is ahead of the other, and the leader knows how far. Between the leader's two
    leaderships, the other follower leads, and the follower that is ahead truncates its log.
    """
    case = _one_of(context, lambda it: it.leader == it.preferred)
    if case is None:
        return
    leader, other, ahead = case.replicas
    context.count("scenario")
    _late(context, leader, other, 400)
    yield context.draw.uniform(100, 350)
    context.expire(context.cluster.brokers[leader])
    if (yield from _until_leader(context, case, other)):
        _late(context, leader, other, 0)
        _late(context, other, ahead, context.draw.uniform(100, 700))
        is_back = yield from in_time(partial(context.is_member, case.key, leader))
        _late(context, ahead, leader, 400)
        if is_back and elect_preferred(context):
            yield from _until_leader(context, case, leader)
            yield context.draw.uniform(100, 500)
    _punctual(context, case)
    yield context.draw.uniform(200, 1_000)


@scenario_of_rounds(50, 400)
def early_follower(context: FaultContext) -> Scenario:
    """Let a follower learn of a leader change before the new leader learns of it.

    The new leader has fewer records than the follower. The old leader is the last broker to learn
    of the leader change, and continues to lead until then.
    """
    case = yield from _one_led_by_controller(context, lambda it: it.leader != it.preferred)
    if case is None:
        return
    old, new = case.leader, case.preferred
    context.count("scenario")
    _late(context, old, new, context.draw.uniform(150, 400))
    _late(context, old, old, 900)
    yield context.draw.uniform(100, 300)
    if elect_preferred(context):
        yield from _until_leader(context, case, new)
        yield context.draw.uniform(500, 1_000)
    _punctual(context, case)
    yield context.draw.uniform(200, 1_000)


@scenario_of_rounds(50, 400)
def unheard_of_return(context: FaultContext) -> Scenario:
    """Let a leader lose and regain its leadership before a follower learns of either change.

    The follower continues to fetch from the leader, and only later learns of the first leader
    change. The leader in between is cut off from the store, and still believes that it leads.
    """
    case = yield from _one_led_by_controller(context, lambda it: it.leader == it.second)
    if case is None:
        return
    between, leader, follower = case.replicas
    context.count("scenario")
    _late(context, leader, follower, context.draw.uniform(500, 900))
    links = _cut_off_from_store(context, between)
    if elect_preferred(context):
        yield from _until_leader(context, case, between)
        yield context.draw.uniform(20, 200)
        context.expire(context.cluster.brokers[between])
        yield from _until_leader(context, case, leader)
        yield 2
        _late(context, leader, follower, 0)
        yield context.draw.uniform(500, 1_000)
    context.heal(links)
    _punctual(context, case)
    yield context.draw.uniform(200, 1_000)


@scenario_of_rounds(50, 400)
def two_terms_lost(context: FaultContext) -> Scenario:
    """Let a leader write records in two leader epochs that the next leader never gets.

    Sometimes the leader that wrote the lost records truncates them and then loses its power.
    """
    case = _one_of(context, lambda it: it.leader == it.preferred)
    if case is None:
        return
    leader, behind, leaving = case.replicas
    brokers, states = context.cluster.brokers, context.cluster.published.partitions
    context.count("scenario")
    _late(context, leader, behind, 700)
    yield context.draw.uniform(50, 150)
    context.expire(brokers[leaving])
    yield from in_time(lambda: leaving not in states[case.key].isr)
    yield context.draw.uniform(50, 300)
    # Cut the leader off from the store: if it could re-register before the election, it would keep
    # its leadership (E7).
    links = _cut_off_from_store(context, leader)
    context.expire(brokers[leader])
    yield from _until_leader(context, case, behind)
    context.heal(links)
    _punctual(context, case)
    if context.draw.random() < 0.6:
        # Wait until the broker has probably written its high watermark checkpoint, but not synced
        # all records.
        yield context.draw.uniform(40, 500)
        brokers[leader].crash(Loss.ALL_UNSYNCED, "the power fails after a truncation")
    yield context.draw.uniform(500, 2_000)


@scenario
def missing_directory(context: FaultContext) -> Scenario:
    """Start the last in-sync member of a partition without the partition's directory (D3).

    All brokers stop, then the last member of the partition's ISR starts. The replica's directory is
    missing, as if its disk was not mounted, and is back at the next start.
    """
    cluster = context.cluster
    #: The broker and the partition whose directory is missing; empty if no directory is missing.
    away: list[tuple[SimBroker, _Case]] = []

    def bring_back() -> None:
        """Restart the broker after its missing directory is put back."""
        if away:
            broker, case = away.pop()
            broker.crash(Loss.NONE, "its directory is there again")
            put_back(context, broker, case.name)
            del cluster.replication.missing[broker.node_id, case.key]
            broker.start()

    context.at_end(bring_back)
    while True:
        yield context.draw.uniform(300, 1_500)
        case = _one_of(context, lambda it: cluster.replication.truth(it.key).committed)
        if case is None:
            continue
        last = cluster.brokers[case.leader]
        for broker in (*context.others(last), last):
            broker.stop(Loss.NONE)
            yield from later_in_time(partial(_is_down, broker), 25, 60)
        isr = cluster.published.partitions[case.key].isr
        if last.life is not None or isr != (last.node_id,):
            continue
        if take_away(context, last, case.name):
            context.count("scenario")
            cluster.replication.missing[last.node_id, case.key] = None
            away.append((last, case))
            last.start()
            yield context.draw.uniform(1_000, 3_000)
            bring_back()
            yield 3_000


def _is_down(broker: SimBroker) -> bool:
    return broker.life is None
