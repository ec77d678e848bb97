"""Profiles of the controller and its store.

Controllers are deposed with writes in flight. The store is slow, or its responses are lost.
Meanwhile brokers write the cluster's events to their topic.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Profile

CONTROLLERS: Final = (
    # The store is slow, so that requests to the controller wait, while brokers crash and return.
    Profile(
        "slow_store",
        weights={
            "crash_any": 4.0,
            "crash_leader": 1.0,
            "slow_link": 4.0,
            "cut_one_way": 2.0,
            "reset_connections": 2.0,
        },
        left_out=0.0,
        mean_interval_ms=(80, 300),
        restart_ms=((20, 200), (20, 600)),
        store_latency_ms=(20.0, 250.0),
    ),
    # Controllers are deposed with writes in flight to a slow store.
    Profile(
        "controller_moves",
        weights={
            "expire_controller": 6.0,
            "expire_session": 3.0,
            "crash_leader": 2.0,
            "slow_link": 1.0,
        },
        left_out=0.0,
        mean_interval_ms=(80, 300),
        restart_ms=((20, 400),),
        store_latency_ms=(2.0, 80.0),
    ),
    # Responses of the store are lost, so a controller does not know the outcome of its writes.
    Profile(
        "lost_answers",
        weights={
            "lose_answer": 6.0,
            "lose_request": 6.0,
            "crash_leader": 2.0,
            "expire_session": 2.0,
            "slow_link": 1.0,
        },
        left_out=0.0,
        mean_interval_ms=(60, 250),
        restart_ms=((20, 400), (200, 1_500)),
    ),
    # The controller dies before its first write, after its first write, before the second ...
    Profile(
        "controller_writes",
        weights={"expire_session": 3.0, "crash_any": 1.0, "lose_answer": 1.0, "slow_link": 1.0},
        left_out=0.25,
        mean_interval_ms=(150, 600),
        restart_ms=((20, 400), (200, 1_500)),
        scenario="controller_lost_at_each_write",
        has_own_streams=True,
    ),
    # Controllers are deposed with writes in flight, or elected without learning of it (V42).
    Profile(
        "unlucky_elections",
        weights={"slow_link": 1.0, "crash_any": 1.0},
        left_out=0.0,
        mean_interval_ms=(500, 1_500),
        store_latency_ms=(2.0, 40.0),
        scenario="unlucky_elections",
        has_own_streams=True,
    ),
    # A controller never gets responses of the store, so it does not act, but its session lives
    # (V42).
    Profile(
        "unanswered_controllers",
        weights={"slow_link": 1.0, "crash_any": 1.0, "expire_session": 1.0},
        left_out=0.0,
        mean_interval_ms=(500, 1_500),
        properties={"controller.activity.timeout.ms": "400"},
        scenario="unanswered_controllers",
        has_own_streams=True,
    ),
    # Brokers write the cluster's events to a topic of the cluster, while these happen (V80).
    Profile(
        "told_events",
        weights={
            "crash_leader": 3.0,
            "crash_any": 2.0,
            "crash_controller": 3.0,
            "expire_session": 3.0,
            "expire_controller": 2.0,
            "elect_preferred": 2.0,
            "cut_one_way": 4.0,
            "reset_connections": 6.0,
            "slow_link": 3.0,
            "lose_answer": 2.0,
            "stop": 1.0,
        },
        left_out=0.2,
        mean_interval_ms=(150, 800),
        properties={"cluster.events.enable": "true"},
        has_own_streams=True,
    ),
    # Registrations are deleted by hand, while the sessions of their brokers live (V4).
    Profile(
        "removed_registrations",
        weights={
            "remove_registration": 6.0,
            "expire_session": 1.0,
            "crash_any": 1.0,
            "slow_link": 2.0,
            "lose_answer": 1.0,
            "cut_store": 1.0,
        },
        left_out=0.2,
        mean_interval_ms=(200, 900),
        restart_ms=((20, 400), (200, 1_500)),
        has_own_streams=True,
    ),
    # The metadata store is put back from an older copy, which names stopped replicas in sync (E8).
    Profile(
        "older_stores",
        weights={
            "slow_link": 2.0,
            "slow_disk": 1.0,
            "lose_answer": 1.0,
            "late_watches": 1.0,
        },
        left_out=0.25,
        mean_interval_ms=(500, 2_000),
        restart_ms=((4_000, 6_000),),
        recreates=0.0,
        scenario="older_store_returns",
        has_groups=False,
        has_own_streams=True,
        properties={"leader.recovery.wait.ms": "3000"},
    ),
    # A peer asks for ISR changes in the leaders' names, and gets the responses (A3).
    Profile(
        "rogue_isr_changes",
        weights={"rogue_isr_change": 6.0, "slow_link": 1.0, "late_watches": 1.0},
        leaders_hear=True,
        left_out=0.0,
        mean_interval_ms=(400, 1_500),
        recreates=0.0,
        has_groups=False,
        has_own_streams=True,
    ),
)
