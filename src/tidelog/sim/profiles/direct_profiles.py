"""Profiles of clusters in which leaders write state nodes themselves (A12).

All brokers are below protocol level 2.7, or some are and others are not. The store loses requests
and responses, sessions end, and controllers die between a leader's write and its notification's
removal. All invariants hold as in other profiles; in addition every ISR must reach every broker.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile, played

DIRECT: Final = (
    # Every leader writes by itself, while followers fall behind and return.
    Profile(
        "direct",
        faults="slow_link 5, cut_two_ways 2, cut_one_way 2, crash_leader 2, crash_any 2,"
        " crash_controller 1, expire_session 2, lose_answer 4, lose_request 2, late_watches 1,"
        " pause 1",
        pace=Pace(
            left_out=0.2, interval_ms=(80, 400), down_ms=((20, 200), (20, 400), (200, 1_500))
        ),
        config="replica.fetch.max.bytes=300",
        protocol_levels=("2.6",),
    ),
    # The store is slow: the controller and a leader write the same nodes at the same time.
    Profile(
        "direct_slow_store",
        faults="slow_link 8, cut_two_ways 2, crash_any 2, crash_leader 1, elect_preferred 4,"
        " expire_session 2, expire_controller 1, lose_answer 2, cut_store 1",
        pace=Pace(left_out=0.2, interval_ms=(60, 300), down_ms=((20, 200), (200, 1_500))),
        config="replica.fetch.max.bytes=300, replica.lag.time.max.ms=400",
        protocol_levels=("2.6",),
        store_latency_ms=(5.0, 150.0),
    ),
    # Leaders write the nodes of members that have restarted, before the controller hears (V10).
    Profile(
        "direct_quick_restarts",
        faults="slow_link 2, crash_any 1, expire_session 0.5",
        pace=Pace(left_out=0.0, interval_ms=(800, 2_000), down_ms=((20, 60),)),
        config="replica.lag.time.max.ms=400",
        protocol_levels=("2.6",),
        scenario="unheard_restarts",
    ),
    # Brokers restart at other levels all the time, up and down (rolling bumps).
    Profile(
        "mixed_levels",
        faults="slow_link 4, cut_two_ways 2, crash_any 1, crash_controller 1, expire_session 2,"
        " lose_answer 3, lose_request 1, elect_preferred 1, late_watches 1",
        pace=Pace(left_out=0.3, interval_ms=(150, 600), down_ms=((20, 400), (200, 1_500))),
        config="replica.fetch.max.bytes=300",
        protocol_levels=("2.6", "3.9"),
        scenario="rolling_bumps",
    ),
    # Partitions move between brokers: a reassignment completes on a notification (A13).
    Profile(
        "direct_moves",
        faults="crash_any 2, crash_controller 1, expire_session 2, lose_answer 2, slow_link 2,"
        " cut_two_ways 1, strike_controller_write 1",
        pace=Pace(left_out=0.3, interval_ms=(150, 800), down_ms=((20, 400), (200, 2_500))),
        recreates=0.3,
        brokers=5,
        churn=("partitions_moved",),
        protocol_levels=("2.6", "2.6", "3.9"),
    ),
    # Leaders write the eligible replicas on which recovery by proof depends (E5, E6).
    played(
        "direct_last_replica",
        scenario="last_replica_standing",
        protocol_levels=("2.6",),
        shares_stream=True,
    ),
    # A follower without a registration catches up, loses its power and returns (V63, E5).
    played(
        "direct_unregistered_fetches",
        pace=Pace(interval_ms=(2_000, 5_000), down_ms=((20, 400),)),
        scenario="unregistered_fetches",
        has_groups=False,
        protocol_levels=("2.6",),
        shares_stream=True,
    ),
    played(
        "direct_member_ends",
        scenario="every_member_ends",
        protocol_levels=("2.6", "2.6", "3.9"),
        shares_stream=True,
    ),
)
