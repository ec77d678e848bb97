"""Sessions that end as soon as they have begun, in a start or in a registration after it (V4).

A registration takes milliseconds, so an expiry that is drawn at any time seldom meets one.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.sim.faults.context import FaultContext, Scenario
from tidelog.sim.faults.kinds import scenario
from tidelog.sim.faults.steps import in_time
from tidelog.sim.faults.store import expire
from tidelog.sim.sim_broker import SimBroker

#: Interval of the looks for the next session, and how often it is looked for.
_LOOK_MS: Final = 2.0
_LOOKS: Final = 1_500
#: Ranges of the time for which a session lives, in ms: as a registration takes, and as a start.
_LIVES_MS: Final = ((0.0, 6.0), (0.0, 6.0), (0.0, 80.0))


@scenario
def sessions_end_early(context: FaultContext) -> Scenario:
    """End the next sessions of a broker within milliseconds; half of the time it starts again."""
    draw = context.draw
    while True:
        yield draw.uniform(50, 800)
        broker = context.any_broker()
        if broker is None:
            continue
        last = _session(broker)
        if draw.random() < 0.5:
            context.crash(broker, "starts again with sessions that end early")
        else:
            expire(context, broker)
        for _ in range(draw.choice((1, 1, 2, 4))):
            if not (yield from in_time(partial(_has_other, broker, last), _LOOK_MS, _LOOKS)):
                break
            yield draw.uniform(*draw.choice(_LIVES_MS))
            last = _session(broker)
            if expire(context, broker):
                context.count("scenario")


def _session(broker: SimBroker) -> int | None:
    return None if broker.life is None or broker.store is None else broker.store.session_id


def _has_other(broker: SimBroker, last: int | None) -> bool:
    return _session(broker) not in (None, last)
