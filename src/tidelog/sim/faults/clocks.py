"""Faults of brokers' clocks: monotonic ones drift, wall clocks jump.

Durations go by the first, timestamps of records and nodes by the second. Jumps stay below what
would let records, producers' ids or offsets expire, for their loss would be no fault of brokers.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.faults.context import FaultContext
from tidelog.sim.faults.kinds import kind

#: Drift in millionths: far beyond quartz, within what sixths of a session timeout leave room for.
_DRIFTS_PPM: Final = (200, 5_000, 50_000)
#: Jumps of a wall clock in ms. Together they stay below what a retention time or the expiry of
#: producers' ids is set to by default (a day at least): beyond it records may go.
_JUMPS_MS: Final = (150, 5_000, 600_000, 3_600_000)
_FURTHEST_MS: Final = 4 * 3_600_000


@kind
def clock_drift(context: FaultContext) -> bool:
    """A broker's monotonic clock runs up to five percent too fast or too slow for a while."""
    broker = context.any_broker()
    if broker is None:
        return False
    node = broker.node
    ppm = context.draw.choice(_DRIFTS_PPM) * context.draw.choice((-1, 1))
    node.drift(ppm)
    context.note(f"clock of {node.host} drifts by {ppm} ppm")

    def steady() -> None:
        node.drift(0)

    context.later(context.draw.uniform(500, 6_000), steady)
    context.at_end(steady)
    return True


@kind
def wall_clock_jump(context: FaultContext) -> bool:
    """A broker's wall clock jumps forward or back, by as much as four hours in all."""
    broker = context.any_broker()
    if broker is None:
        return False
    node = broker.node
    jump_ms = context.draw.choice(_JUMPS_MS) * context.draw.choice((-1, 1))
    if abs(node.wall_offset_ms + jump_ms) > _FURTHEST_MS:
        jump_ms = -jump_ms
    node.wall_offset_ms += jump_ms
    context.note(f"wall clock of {node.host} jumps by {jump_ms} ms")
    return True
