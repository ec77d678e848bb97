"""Controlled shutdowns (V43) of one broker, of some, or of all at once.

`stop` and `rolling_restart` begin a shutdown without an interruption. Here a shutdown may also be
interrupted, by a crash of the stopping broker or of the controller.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.faults.context import LOSSES, FaultContext, Scenario
from tidelog.sim.faults.kinds import scenario
from tidelog.sim.sim_broker import SimBroker

#: Number of brokers that stop together; each entry is equally likely.
_COUNTS: Final = (1, 1, 1, 2, 3)
#: Ranges of the time in ms after which the stopping broker or the controller crashes.
_CRASH_MS: Final = ((1, 20), (5, 400))


@scenario
def stop_together(context: FaultContext) -> Scenario:
    """Shut one, two or all brokers down together; some crash during their shutdown.

    The controller may crash, too.
    """
    while True:
        yield context.draw.uniform(200, 2_500)
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
