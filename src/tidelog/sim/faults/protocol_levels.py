"""Rolling bumps of the protocol between brokers, up and down again (A12).

Every broker restarts in its turn with another level: some leaders write state nodes themselves
while others send AlterPartition, and leaderships move between both kinds.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.disk import Loss
from tidelog.sim.faults.context import LOSSES, FaultContext, Scenario
from tidelog.sim.faults.kinds import scenario

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
