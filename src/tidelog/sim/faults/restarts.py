"""Scenarios of sessions that end early, shutdowns, changes of protocol levels, unnoticed restarts.

Sessions end right after they begin, while the broker starts or re-registers (V4). A registration
takes milliseconds, so an expiry at a random time seldom comes during a registration.

Brokers shut down in a controlled way (V43): one, some, or all at once. In these scenarios, unlike
in the faults `stop` and `rolling_restart`, the stopping broker or the controller may crash during
the shutdown.

Leaders of older protocol levels write state nodes themselves (A12). In a rolling bump, the brokers
restart in turn with another protocol level. Meanwhile, some leaders write state nodes themselves
while others send AlterPartition, and leadership moves between these two kinds of leaders. In an
unnoticed restart, a leader writes the state node before the controller learns that a member has
restarted.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.sim.disk import Loss
from tidelog.sim.faults.context import LOSSES, FaultContext, Scenario, both_ways, in_time
from tidelog.sim.faults.kinds import scenario, scenario_of_rounds
from tidelog.sim.faults.store import hold_watches_back
from tidelog.sim.sim_broker import SimBroker

#: Interval in ms of the checks for the broker's next session; `_SESSION_LOOKS` is their number.
_SESSION_LOOK_MS: Final = 2.0
_SESSION_LOOKS: Final = 1_500
#: Ranges of the time in ms from the start of a session to its end; each range is equally likely.
#: The short ranges end a session during a registration, the long range during the broker's start.
_LIVES_MS: Final = ((0.0, 6.0), (0.0, 6.0), (0.0, 80.0))
#: Number of brokers that stop together; each entry is equally likely.
_COUNTS: Final = (1, 1, 1, 2, 3)
#: Two ranges of time in ms: the stopping broker or the controller crashes after a random time
#: within one of them.
_CRASH_MS: Final = ((1, 20), (5, 400))
#: Protocol levels without and with AlterPartition.
_LEVELS: Final = ("2.6", "3.9")
#: Number of checks whether a restarted broker is back, at intervals of `_BUMP_LOOK_MS`; then the
#: next broker restarts in any case.
_BUMP_LOOKS: Final = 60
_BUMP_LOOK_MS: Final = 50


@scenario_of_rounds(50, 800)
def sessions_end_early(context: FaultContext) -> Scenario:
    """End the next sessions of a broker soon after they begin, sometimes after its restart."""
    draw = context.draw
    broker = context.any_broker()
    if broker is None:
        return
    last = _session(broker)
    if draw.random() < 0.5:
        context.crash(broker, "starts again with sessions that end early")
    else:
        context.expire(broker)
    for _ in range(draw.choice((1, 1, 2, 4))):
        has_other = partial(_has_other, broker, last)
        if not (yield from in_time(has_other, _SESSION_LOOK_MS, _SESSION_LOOKS)):
            break
        yield draw.uniform(*draw.choice(_LIVES_MS))
        last = _session(broker)
        if context.expire(broker):
            context.count("scenario")


def _session(broker: SimBroker) -> int | None:
    return None if broker.life is None or broker.store is None else broker.store.session_id


def _has_other(broker: SimBroker, last: int | None) -> bool:
    return _session(broker) not in (None, last)


@scenario_of_rounds(200, 2_500)
def stop_together(context: FaultContext) -> Scenario:
    """Shut one, two or all brokers down together.

    A stopping broker or the controller may crash during the shutdown.
    """
    brokers = [
        broker
        for broker in context.cluster.brokers.values()
        if broker.life is not None and not broker.is_stopping
    ]
    count = min(len(brokers), context.draw.choice(_COUNTS))
    if count:
        context.count("scenario")
    for broker in context.draw.sample(brokers, count):
        context.note(f"stop {broker.node_id} of {count}")
        broker.stop(context.draw.choice(LOSSES))
        if context.draw.random() < 0.3:
            _crash_soon(context, broker)
        yield context.draw.choice((0, 0, context.draw.uniform(1, 60)))


def _crash_soon(context: FaultContext, stopping: SimBroker) -> None:
    victim = stopping if context.draw.random() < 0.5 else context.controller()
    if victim is None:
        return
    life = victim.incarnation

    def crash() -> None:
        if context.is_active and victim.incarnation == life:
            context.crash(victim, "crashes during a controlled shutdown")

    context.later(context.draw.uniform(*context.draw.choice(_CRASH_MS)), crash)


@scenario
def rolling_bumps(context: FaultContext) -> Scenario:
    """Restart all brokers in turn with another protocol level, alternately higher and lower.

    A broker is shut down or killed. Sometimes the scenario waits for a healthy cluster before the
    next restart, as an operator does.
    """
    is_up = context.draw.random() < 0.5
    while True:
        is_up = not is_up
        waits = context.draw.random() < 0.5
        for broker in list(context.cluster.brokers.values()):
            yield context.draw.uniform(20, 600)
            life = broker.incarnation
            broker.take_level(_LEVELS[is_up])
            context.note(f"broker {broker.node_id} gets protocol level {_LEVELS[is_up]}")
            if context.draw.random() < 0.5:
                broker.stop(context.draw.choice(LOSSES))
            elif broker.life is not None and not broker.crash(Loss.NONE, "gets another level"):
                continue
            context.count("scenario")
            yield from context.until_back(broker, life, _BUMP_LOOK_MS, _BUMP_LOOKS, waits=waits)


@scenario_of_rounds(1_200, 2_500)
def unheard_restarts(context: FaultContext) -> Scenario:
    """Let a leader write a state node before the controller learns that a member has restarted.

    The leader gets no fetches of the controller's broker, and so removes this broker from the ISR
    by a write of the state node. Meanwhile the third broker crashes and restarts. All watches are
    late, so the controller learns late of the write and of the restart.
    """
    cluster = context.cluster
    controller = context.controller()
    leader = context.leader()
    if controller is None or leader is None or leader is controller:
        return
    third = next(iter(context.others(controller, leader)), None)
    if third is None or third.life is None or cluster.health():
        return
    context.count("scenario")
    late_ms = context.draw.uniform(600, 1_400)
    hold_watches_back(context, partial(float, late_ms), late_ms + 800)
    links = both_ways((leader.node.host, controller.node.host))
    context.cut(links)
    lag_ms = cluster.settings.of(leader.node_id).replica_lag_time_max_ms
    yield lag_ms * context.draw.uniform(0.3, 1.0)
    context.note(f"restart {third.node_id} unheard of; {leader.node_id} may lead")
    third.crash(context.draw.choice(LOSSES), "restarts unheard of")
    yield lag_ms + 400
    context.heal(links)
