"""Faults of brokers' clocks: monotonic clocks drift, wall clocks jump.

Brokers measure durations by the monotonic clock, and take timestamps of records and nodes from the
wall clock. Jumps are so short that no records, producer ids or offsets expire by them. Brokers may
remove what has expired, so checkers could not distinguish this from a loss.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.sim.faults.context import FaultContext
from tidelog.sim.faults.kinds import kind_at_broker
from tidelog.sim.sim_broker import SimBroker

#: Drift in millionths. These drifts are far above the drift of quartz clocks, but a session that is
#: renewed six times per timeout tolerates them.
_DRIFTS_PPM: Final = (200, 5_000, 50_000)
#: Jumps of a wall clock in ms. The sum of all jumps stays below the default retention time and the
#: expiry of producer ids (at least a day), so that nothing expires.
_JUMPS_MS: Final = (150, 5_000, 600_000, 3_600_000)
_FURTHEST_MS: Final = 4 * 3_600_000


@kind_at_broker
def clock_drift(context: FaultContext, broker: SimBroker) -> None:
    """Let a broker's monotonic clock run up to five percent too fast or too slow for a while."""
    node = broker.node
    ppm = context.draw.choice(_DRIFTS_PPM) * context.draw.choice((-1, 1))
    node.drift(ppm)
    context.note(f"clock of {node.host} drifts by {ppm} ppm")
    context.until(context.draw.uniform(500, 6_000), partial(node.drift, 0))


@kind_at_broker
def wall_clock_jump(context: FaultContext, broker: SimBroker) -> None:
    """Let a broker's wall clock jump forward or back, by at most four hours in all."""
    node = broker.node
    jump_ms = context.draw.choice(_JUMPS_MS) * context.draw.choice((-1, 1))
    if abs(node.wall_offset_ms + jump_ms) > _FURTHEST_MS:
        jump_ms = -jump_ms
    node.wall_offset_ms += jump_ms
    context.note(f"wall clock of {node.host} jumps by {jump_ms} ms")
