"""Profiles that test the controller, the store, broker processes, and leaders that write state
nodes.

In some profiles, controllers are deposed with writes in flight, and the store is slow or loses
responses. In some profiles, brokers write the cluster's events to their topic.

Brokers shut down in a controlled way, alone or together; processes pause beyond their session
timeouts. In one profile, leaders crash or stop, and clients ask brokers for the next leaders.

In the last profiles, leaders write state nodes themselves (A12), because all or some brokers are
below protocol level 2.7. The store loses requests and responses, sessions end, and controllers die
after a leader's write, before they remove the leader's notification of the write. All invariants
must hold, and in addition every broker must learn of every ISR.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile, played

CONTROLLERS: Final = (
    # The store is slow, so that requests to the controller wait, while brokers crash and return.
    Profile(
        "slow_store",
        faults="crash_any 4, crash_leader 1, slow_link 4, cut_one_way 2, reset_connections 2",
        pace=Pace(left_out=0.0, interval_ms=(80, 300), down_ms=((20, 200), (20, 600))),
        store_latency_ms=(20.0, 250.0),
        shares_stream=True,
    ),
    # Controllers are deposed with writes in flight to a slow store.
    Profile(
        "controller_moves",
        faults="expire_controller 6, expire_session 3, crash_leader 2, slow_link 1",
        pace=Pace(left_out=0.0, interval_ms=(80, 300), down_ms=((20, 400),)),
        store_latency_ms=(2.0, 80.0),
        shares_stream=True,
    ),
    # Responses of the store are lost, so a controller does not know the outcome of its writes.
    Profile(
        "lost_answers",
        faults="lose_answer 6, lose_request 6, crash_leader 2, expire_session 2, slow_link 1",
        pace=Pace(left_out=0.0, interval_ms=(60, 250), down_ms=((20, 400), (200, 1_500))),
        shares_stream=True,
    ),
    # The controller dies before its first write, after its first write, before its second write,
    # and so on.
    Profile(
        "controller_writes",
        faults="expire_session 3, crash_any 1, lose_answer 1, slow_link 1",
        pace=Pace(left_out=0.25, interval_ms=(150, 600), down_ms=((20, 400), (200, 1_500))),
        scenario="controller_lost_at_each_write",
    ),
    # Controllers are deposed with writes in flight, or elected without learning of it (V42).
    Profile(
        "unlucky_elections",
        faults="slow_link 1, crash_any 1",
        pace=Pace(left_out=0.0, interval_ms=(500, 1_500)),
        store_latency_ms=(2.0, 40.0),
        scenario="unlucky_elections",
    ),
    # A controller gets no response of the store, so it does not act, but it keeps its session
    # (V42).
    Profile(
        "unanswered_controllers",
        faults="slow_link 1, crash_any 1, expire_session 1",
        pace=Pace(left_out=0.0, interval_ms=(500, 1_500)),
        config="controller.activity.timeout.ms=400",
        scenario="unanswered_controllers",
    ),
    # Brokers write the cluster's events to a topic as the events happen (V80).
    Profile(
        "told_events",
        faults="crash_leader 3, crash_any 2, crash_controller 3, expire_session 3,"
        " expire_controller 2, elect_preferred 2, cut_one_way 4, reset_connections 6, slow_link 3,"
        " lose_answer 2, stop 1",
        pace=Pace(left_out=0.2, interval_ms=(150, 800)),
        config="cluster.events.enable=true",
    ),
    # Registrations are deleted by hand, while their brokers keep their sessions (V4).
    Profile(
        "removed_registrations",
        faults="remove_registration 6, expire_session 1, crash_any 1, slow_link 2, lose_answer 1,"
        " cut_store 1",
        pace=Pace(left_out=0.2, interval_ms=(200, 900), down_ms=((20, 400), (200, 1_500))),
    ),
    # The metadata store is restored from an older copy, which has stopped replicas in the ISR (E8).
    Profile(
        "older_stores",
        faults="slow_link 2, slow_disk 1, lose_answer 1, late_watches 1",
        pace=Pace(left_out=0.25, interval_ms=(500, 2_000), down_ms=((4_000, 6_000),)),
        recreates=0.0,
        scenario="older_store_returns",
        has_groups=False,
        config="leader.recovery.wait.ms=3000",
    ),
    # A peer that pretends to be the leader requests ISR changes, and gets the responses (A3).
    Profile(
        "rogue_isr_changes",
        faults="rogue_isr_change 6, slow_link 1, late_watches 1",
        leaders_hear=True,
        pace=Pace(left_out=0.0, interval_ms=(400, 1_500)),
        recreates=0.0,
        has_groups=False,
    ),
    # Brokers shut down in a controlled way, alone or together, while other brokers and the
    # controller crash (V43).
    Profile(
        "shutdowns",
        faults="slow_link 3, cut_two_ways 1.5, crash_controller 1.5, crash_any 1,"
        " expire_session 1, lose_answer 1, slow_disk 1",
        pace=Pace(left_out=0.25, interval_ms=(300, 1_200), down_ms=((20, 400), (200, 2_500))),
        config="controlled.shutdown.enable=true, controlled.shutdown.retry.backoff.ms=300",
        scenario="stop_together",
    ),
    # Processes pause beyond their session timeouts; some clients know only the brokers of the last
    # Metadata response (V47, V82).
    Profile(
        "pauses",
        faults="pause 6, expire_session 4, crash_any 2, slow_link 2, cut_store 0.5",
        pace=Pace(left_out=0.1, interval_ms=(300, 1_200), down_ms=((20, 400), (200, 2_500))),
        recreates=0.3,
        churn=("brokers_followed",),
    ),
    # Leaders crash or stop, and clients request the next leaders at once (V83). A connection breaks
    # only when one of its processes ends, so that brokers delay responses only because a leader has
    # ended.
    Profile(
        "leaders_end",
        faults="crash_leader 5, crash_controller 2, crash_any 1, stop 3",
        pace=Pace(left_out=0.2, interval_ms=(400, 1_200), down_ms=((20, 400), (200, 2_500))),
        recreates=0.0,
        churn=("leaders_followed",),
        watches_leader_waits=True,
    ),
    # Every leader writes state nodes itself, while followers fall behind and return.
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
    # The store is slow, so the controller and a leader often write a state node at the same time.
    Profile(
        "direct_slow_store",
        faults="slow_link 8, cut_two_ways 2, crash_any 2, crash_leader 1, elect_preferred 4,"
        " expire_session 2, expire_controller 1, lose_answer 2, cut_store 1",
        pace=Pace(left_out=0.2, interval_ms=(60, 300), down_ms=((20, 200), (200, 1_500))),
        config="replica.fetch.max.bytes=300, replica.lag.time.max.ms=400",
        protocol_levels=("2.6",),
        store_latency_ms=(5.0, 150.0),
    ),
    # Leaders write state nodes with restarted members before the controller learns of restarts
    # (V10).
    Profile(
        "direct_quick_restarts",
        faults="slow_link 2, crash_any 1, expire_session 0.5",
        pace=Pace(left_out=0.0, interval_ms=(800, 2_000), down_ms=((20, 60),)),
        config="replica.lag.time.max.ms=400",
        protocol_levels=("2.6",),
        scenario="unheard_restarts",
    ),
    # Brokers restart repeatedly at other protocol levels, up and down (rolling bumps).
    Profile(
        "mixed_levels",
        faults="slow_link 4, cut_two_ways 2, crash_any 1, crash_controller 1, expire_session 2,"
        " lose_answer 3, lose_request 1, elect_preferred 1, late_watches 1",
        pace=Pace(left_out=0.3, interval_ms=(150, 600), down_ms=((20, 400), (200, 1_500))),
        config="replica.fetch.max.bytes=300",
        protocol_levels=("2.6", "3.9"),
        scenario="rolling_bumps",
    ),
    # Partitions move between brokers; a notification of an ISR change completes a reassignment
    # (A13).
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
    # Leaders write the eligible replicas, from which the controller later elects leaders by proof
    # of intact logs (E5, E6).
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
