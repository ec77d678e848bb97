"""Leaders that write state nodes themselves: rolling bumps of levels, and unheard restarts (A12).

In a rolling bump every broker restarts in its turn with another level: some leaders write state
nodes themselves while others send AlterPartition, and leaderships move between both kinds. In an
unheard restart a leader writes the node before the controller learns that a member has restarted.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.sim.disk import Loss
from tidelog.sim.faults.context import LOSSES, FaultContext, Scenario
from tidelog.sim.faults.kinds import scenario
from tidelog.sim.faults.steps import both_ways, cut, heal
from tidelog.sim.faults.store import hold_watches_back

#: Levels below and above the first one with AlterPartition.
_LEVELS: Final = ("2.6", "3.9")
#: Number and interval of the looks at one broker, until the next one has its turn anyway.
_LOOKS: Final = 60
_LOOK_MS: Final = 50


@scenario
def rolling_bumps(context: FaultContext) -> Scenario:
    """Restart all brokers in turn at another protocol level, up and down, by shutdown or kill.

    Sometimes each broker waits until the cluster is healthy, as an operator does.
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
            for _ in range(_LOOKS):
                yield _LOOK_MS
                is_back = broker.life is not None and broker.incarnation > life
                if is_back and not (waits and context.cluster.health()):
                    break


@scenario
def unheard_restarts(context: FaultContext) -> Scenario:
    """Let a leader write a state node before the controller hears that a member has restarted.

    The leader loses sight of the controller's broker and takes it out of the ISR. Meanwhile the
    third broker loses its power and is back. All watches are late.
    """
    cluster = context.cluster
    while True:
        yield context.draw.uniform(1_200, 2_500)
        controller = context.controller()
        leader = context.leader()
        if controller is None or leader is None or leader is controller:
            continue
        third = next(
            (each for each in cluster.brokers.values() if each not in (controller, leader)), None
        )
        if third is None or third.life is None or cluster.health():
            continue
        context.count("scenario")
        late_ms = context.draw.uniform(600, 1_400)
        hold_watches_back(context, partial(float, late_ms), late_ms + 800)
        links = both_ways((leader.node.host, controller.node.host))
        cut(context, links)
        lag_ms = cluster.settings.of(leader.node_id).replica_lag_time_max_ms
        yield lag_ms * context.draw.uniform(0.3, 1.0)
        context.note(f"restart {third.node_id} unheard of; {leader.node_id} may lead")
        third.crash(context.draw.choice(LOSSES), "restarts unheard of")
        yield lag_ms + 400
        heal(context, links)
