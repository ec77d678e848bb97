"""Brokers that are told to stop hand over what they lead (V43): one alone, some, or all at once.

What `stop` and `rolling_restart` do ends as it begins; here it is interrupted, too: by a crash of
the broker that hands over, or of the controller that it asked.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.faults.kinds import scenario
from tidelog.sim.faults.stage import LOSSES, Scenario, Stage
from tidelog.sim.sim_broker import SimBroker

#: How many are told to stop together, as likely as it stands here.
_COUNTS: Final = (1, 1, 1, 2, 3)
#: Ranges of the time in ms after which something crashes that had a part in a hand-over.
_CRASH_MS: Final = ((1, 20), (5, 400))


@scenario
def stop_together(stage: Stage) -> Scenario:
    """Brokers are told to stop, one, two or all within a moment; now and then one of them, or the
    controller, crashes as they hand over."""
    while True:
        yield stage.draw.uniform(200, 2_500)
        brokers = [
            broker
            for broker in stage.cluster.brokers.values()
            if broker.life is not None and not broker.is_stopping
        ]
        count = min(len(brokers), stage.draw.choice(_COUNTS))
        if count:
            stage.count("scenario")
        for broker in stage.draw.sample(brokers, count):
            stage.note(f"stop {broker.node_id} of {count}")
            broker.stop(stage.draw.choice(LOSSES))
            if stage.draw.random() < 0.3:
                _crash_soon(stage, broker)
            yield stage.draw.choice((0, 0, stage.draw.uniform(1, 60)))


def _crash_soon(stage: Stage, stopping: SimBroker) -> None:
    victim = stopping if stage.draw.random() < 0.5 else stage.controller()
    if victim is None:
        return
    life = victim.incarnation

    def crash() -> None:
        if stage.is_active and victim.incarnation == life:
            stage.crash(victim, "crashes during a hand-over")

    stage.later(stage.draw.uniform(*stage.draw.choice(_CRASH_MS)), crash)
