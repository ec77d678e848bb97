"""Profiles of leaders whose reads are slow: their page cache is cold and their disks take seconds.

Followers and producers are as quick as ever. With pending reads a follower that waits for its
leader stays in the ISR, and one that died leaves it all the same (F5 to F8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile, weights

_PENDING: Final[Mapping[str, str]] = {"follower.fetch.pending.reads.insync.enable": "true"}
#: A follower falls out of sync within a single slow read, and waits for many of them.
_SHORT_LAG: Final[Mapping[str, str]] = {
    "replica.lag.time.max.ms": "600",
    "replica.socket.timeout.ms": "20000",
    # A response ends at the end of a segment. Small segments would keep followers from reaching
    # the LEO of their fetch before.
    "log.segment.bytes": "4194304",
}

SLOW_LEADERS: Final = (
    # Nothing fails, and only reads are slow. No follower may leave an ISR.
    Profile(
        "slow_leaders",
        weights=weights("slow_reads 1"),
        pace=Pace(left_out=0.0, interval_ms=(300, 1_500)),
        recreates=0.0,
        properties={**_SHORT_LAG, **_PENDING},
        isr_stands=True,
        session_timeout_ms=4_000,
    ),
    # The same without pending reads: followers leave ISRs, and acknowledged records survive.
    Profile(
        "slow_leaders_unaided",
        weights=weights("slow_reads 1"),
        pace=Pace(left_out=0.0, interval_ms=(300, 1_500)),
        recreates=0.0,
        properties=_SHORT_LAG,
        session_timeout_ms=4_000,
    ),
    # Followers die, or are cut off, while leaders read for them. Their sessions outlive the lag
    # limit, so that the leader itself must take them out of the ISR (F7).
    Profile(
        "dead_followers",
        weights=weights(
            "slow_reads 6, crash_any 3, crash_leader 1, reset_connections 2, cut_two_ways 1,"
            " pause 1, expire_session 0.5"
        ),
        pace=Pace(left_out=0.0, interval_ms=(300, 900), down_ms=((3_000, 6_000), (200, 5_000))),
        properties={**_SHORT_LAG, **_PENDING, "replica.socket.timeout.ms": "6000"},
        session_timeout_ms=9_000,
    ),
    # Brokers die while leaders read for the others: the controller takes them out of the ISRs, and
    # the same leaders lead on under other epochs (F7). Their healthy followers stay.
    Profile(
        "readers_led_on",
        weights=weights("slow_reads 4, crash_any 1, stop 1, expire_session 0.5"),
        pace=Pace(left_out=0.0, interval_ms=(400, 1_500), down_ms=((200, 1_000), (1_000, 3_000))),
        recreates=0.0,
        # A fetch that comes before its leader knows the new epoch is repeated within the lag limit.
        properties={**_SHORT_LAG, **_PENDING, "replica.fetch.backoff.ms": "100"},
        healthy_stay=True,
        session_timeout_ms=2_000,
    ),
    # Leaders whose reads hang hand their leaderships over (F11).
    Profile(
        "hung_leaders",
        weights=weights("hung_reads 4, slow_reads 1, crash_any 0.5, slow_link 0.5"),
        pace=Pace(left_out=0.0, interval_ms=(600, 2_500), down_ms=((20, 400), (200, 2_500))),
        properties={
            **_SHORT_LAG,
            **_PENDING,
            "replica.socket.timeout.ms": "6000",
            "leader.relinquish.on.slow.reads.enable": "true",
            "leader.imbalance.check.interval.seconds": "4",
            "leader.imbalance.per.broker.percentage": "0",
        },
    ),
)
