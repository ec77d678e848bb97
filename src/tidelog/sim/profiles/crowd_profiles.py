"""Profiles of crowds: clients that take all connections, or read none of their responses.

Connections of brokers break meanwhile, so that each must connect again through the crowd (L1).
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile, weights

CROWDS: Final = (
    # Nothing fails but connections, which a broker restores at once. So no follower may leave.
    Profile(
        "crowded",
        weights=weights("reset_connections 1"),
        pace=Pace(left_out=0.0, interval_ms=(300, 1_500)),
        recreates=0.0,
        properties={
            "max.connections": "60",
            "connections.max.idle.ms": "16000",
            "queued.max.response.bytes": "65536",
            "replica.lag.time.max.ms": "600",
        },
        churn=("crowds",),
        isr_stands=True,
        session_timeout_ms=4_000,
    ),
)
