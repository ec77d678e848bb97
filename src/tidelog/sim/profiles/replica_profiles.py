"""Profiles of leaders and followers.

Roles and ISR changes arrive late, followers fall behind, replicas return with less than the others
know of, leaders are elected again and again.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Profile

REPLICAS: Final = (
    # Brokers lose data and are back before the controller has heard of their death.
    Profile(
        "quick_restarts",
        weights={"crash_leader": 3.0, "crash_any": 2.0, "cut_store": 4.0, "slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(80, 250),
        restart_ms=((20, 200),),
    ),
    # Leaders die while followers catch up batch by batch: some end between the high watermark
    # that the new leader knows of and what was committed.
    Profile(
        "slow_catch_up",
        weights={"crash_leader": 4.0, "crash_any": 2.0, "slow_link": 2.0},
        left_out=0.0,
        mean_interval_ms=(200, 600),
        restart_ms=((20, 400), (200, 1_500)),
        properties={"replica.fetch.max.bytes": "300"},
    ),
    # Leaders die while the links to their followers are slow or cut: what they told clients
    # before their followers had it is lost.
    Profile(
        "slow_followers",
        weights={"slow_link": 6.0, "cut_two_ways": 3.0, "crash_leader": 3.0},
        left_out=0.0,
        mean_interval_ms=(100, 400),
        restart_ms=((200, 1_500),),
    ),
    # Leaders move on and back while some brokers hear of it late, and go on as they were told.
    Profile(
        "late_roles",
        weights={
            "late_roles": 5.0,
            "elect_preferred": 8.0,
            "expire_session": 4.0,
            "expire_controller": 2.0,
            "slow_link": 8.0,
            "cut_one_way": 1.0,
        },
        left_out=0.0,
        mean_interval_ms=(60, 250),
        restart_ms=((20, 400), (200, 1_500)),
    ),
    # Changes of the ISR take their time, or come late, while followers fall behind and return.
    Profile(
        "late_isr",
        weights={
            "slow_link": 5.0,
            "cut_one_way": 4.0,
            "cut_two_ways": 2.0,
            "crash_any": 1.0,
            "expire_session": 1.0,
        },
        left_out=0.0,
        mean_interval_ms=(80, 300),
        restart_ms=((20, 60), (200, 1_500)),
        properties={"replica.fetch.max.bytes": "300"},
        store_latency_ms=(5.0, 150.0),
    ),
    # Disks take their time while leaders lead on under new epochs, as followers come and go:
    # what was planned under one epoch is written when the next is about to begin.
    Profile(
        "busy_leaders",
        weights={"slow_disk": 6.0, "crash_any": 2.0, "expire_session": 3.0, "slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(60, 250),
        restart_ms=((20, 200), (20, 600)),
    ),
    # The only member in sync of a partition begins without the partition's directory (D3).
    Profile(
        "missing_directory",
        weights={"slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(2_000, 5_000),
        restart_ms=((3_000, 5_000),),
        recreates=0.0,
        scenario="missing_directory",
        has_own_streams=True,
    ),
    # A leader comes back before a follower that has less than it knew of (V31).
    Profile(
        "leader_returns",
        weights={"slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(2_000, 5_000),
        scenario="leader_returns",
        has_own_streams=True,
    ),
    # Of a new leader a follower hears first, and the new leader last (V32, V37).
    Profile(
        "early_follower",
        weights={"slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(2_000, 5_000),
        scenario="early_follower",
        has_own_streams=True,
    ),
    # A leader is deposed and back before a follower hears of it, who hears of both late (V37).
    Profile(
        "unheard_of_return",
        weights={"slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(2_000, 5_000),
        scenario="unheard_of_return",
        has_own_streams=True,
    ),
    # What a leader wrote under two leader epochs is cut off, and back after a power loss.
    Profile(
        "two_terms_lost",
        weights={"slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(2_000, 5_000),
        # What is cut off is on disk already, and what comes after it not yet.
        properties={
            "log.flush.interval.ms": "300",
            "replica.high.watermark.checkpoint.interval.ms": "40",
        },
        scenario="two_terms_lost",
        has_own_streams=True,
    ),
    # Leaders are elected from outside the ISR, as the brokers are configured to (V13): records
    # go that were committed, and nothing else does.
    Profile(
        "unclean_elections",
        weights={
            "crash_leader": 1.0,
            "crash_any": 1.0,
            "crash_controller": 1.0,
            "expire_controller": 1.0,
            "cut_two_ways": 1.0,
            "lose_answer": 2.0,
            "slow_link": 2.0,
        },
        left_out=0.3,
        mean_interval_ms=(1_500, 4_000),
        restart_ms=((3_000, 5_000), (800, 4_000)),
        properties={
            "replica.lag.time.max.ms": "700",
            "unclean.leader.election.enable": "true",
            "cluster.events.enable": "true",
        },
        scenario="left_behind",
        keeps_budget=False,
        keeps_promises=False,
        has_own_streams=True,
    ),
    # Leaderships go back by themselves all the time, while those that are to have them fall,
    # come back and catch up (V46).
    Profile(
        "balance",
        weights={
            "crash_any": 1.0,
            "crash_controller": 0.3,
            "elect_preferred": 2.0,
            "expire_session": 1.0,
            "slow_link": 4.0,
            "cut_two_ways": 2.0,
            "lose_answer": 1.0,
        },
        left_out=0.3,
        mean_interval_ms=(500, 2_000),
        restart_ms=((20, 400), (200, 1_500)),
        properties={
            "leader.imbalance.check.interval.seconds": "1",
            "leader.imbalance.per.broker.percentage": "0",
            "replica.fetch.max.bytes": "300",
        },
        scenario="brokers_catch_up",
        has_own_streams=True,
    ),
    Profile(
        "last_replica_standing",
        weights={"slow_link": 1.0},
        mean_interval_ms=(2_000, 5_000),
        scenario="last_replica_standing",
        keeps_budget=False,
        known_defect="needs eligible leader replicas (rules E1, E2, E4)",
    ),
)
