"""Profiles of leaders and followers.

Roles and ISR changes arrive late. Followers fall behind. Replicas return with fewer records than
other brokers expect. Leaders are elected again and again.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Profile

REPLICAS: Final = (
    # Brokers lose data and are back before the controller learns of their death.
    Profile(
        "quick_restarts",
        weights={"crash_leader": 3.0, "crash_any": 2.0, "cut_store": 4.0, "slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(80, 250),
        restart_ms=((20, 200),),
    ),
    # Leaders die while followers catch up batch by batch. Some logs then end between the new
    # leader's high watermark and the end of the committed records.
    Profile(
        "slow_catch_up",
        weights={"crash_leader": 4.0, "crash_any": 2.0, "slow_link": 2.0},
        left_out=0.0,
        mean_interval_ms=(200, 600),
        restart_ms=((20, 400), (200, 1_500)),
        properties={"replica.fetch.max.bytes": "300"},
    ),
    # Leaders die while the links to their followers are slow or cut. Records that they
    # acknowledged before their followers had them are lost.
    Profile(
        "slow_followers",
        weights={"slow_link": 6.0, "cut_two_ways": 3.0, "crash_leader": 3.0},
        left_out=0.0,
        mean_interval_ms=(100, 400),
        restart_ms=((200, 1_500),),
    ),
    # Leadership moves away and back, while some brokers learn of it late and keep their old roles.
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
    # Changes of the ISR are slow, or arrive late, while followers fall behind and return.
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
    # Disks are slow while leaders continue under new epochs, as followers crash and return. An
    # append that was planned under one epoch is written when the next epoch is about to begin.
    Profile(
        "busy_leaders",
        weights={"slow_disk": 6.0, "crash_any": 2.0, "expire_session": 3.0, "slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(60, 250),
        restart_ms=((20, 200), (20, 600)),
    ),
    # The only member of a partition's ISR starts without the partition's directory (D3).
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
    # A former leader leads again before a follower reports that it has fewer records now (V31).
    Profile(
        "leader_returns",
        weights={"slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(2_000, 5_000),
        scenario="leader_returns",
        has_own_streams=True,
    ),
    # A follower learns of a new leader before the new leader itself does (V32, V37).
    Profile(
        "early_follower",
        weights={"slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(2_000, 5_000),
        scenario="early_follower",
        has_own_streams=True,
    ),
    # A leader is deposed and elected again before a follower learns of either change (V37).
    Profile(
        "unheard_of_return",
        weights={"slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(2_000, 5_000),
        scenario="unheard_of_return",
        has_groups=False,
        has_own_streams=True,
    ),
    # Records of two leader epochs are truncated, and are back after a power loss.
    Profile(
        "two_terms_lost",
        weights={"slow_link": 1.0},
        left_out=0.0,
        mean_interval_ms=(2_000, 5_000),
        # The truncated records are on disk already, and the records behind them not yet.
        properties={
            "log.flush.interval.ms": "300",
            "replica.high.watermark.checkpoint.interval.ms": "40",
        },
        scenario="two_terms_lost",
        has_groups=False,
        has_own_streams=True,
    ),
    # The configuration allows leaders from outside the ISR (V13). Committed records may be lost,
    # but all other invariants hold.
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
    # The controller returns leadership to preferred replicas all the time, while these crash,
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
        "every_member_ends",
        weights={"slow_link": 1.0},
        mean_interval_ms=(2_000, 5_000),
        scenario="every_member_ends",
    ),
    Profile(
        "a_host_stays_away",
        weights={"slow_link": 1.0},
        mean_interval_ms=(2_000, 5_000),
        scenario="every_member_ends",
        has_absentee=True,
    ),
    Profile(
        "older_disks",
        weights={"slow_link": 1.0},
        mean_interval_ms=(2_000, 5_000),
        scenario="older_disk_returns",
    ),
    Profile(
        "last_replica_standing",
        weights={"slow_link": 1.0},
        mean_interval_ms=(2_000, 5_000),
        scenario="last_replica_standing",
    ),
    # Requests for ISR changes stay without a response, while other members fall behind and catch
    # up: newer changes supersede those whose outcome is open (A8).
    Profile(
        "superseded_changes",
        weights={
            "slow_link": 6.0,
            "cut_one_way": 4.0,
            "reset_connections": 4.0,
            "crash_any": 2.0,
            "crash_controller": 1.0,
            "expire_session": 1.0,
        },
        left_out=0.1,
        mean_interval_ms=(60, 250),
        restart_ms=((20, 200), (20, 600)),
        properties={"request.timeout.ms": "150", "replica.lag.time.max.ms": "600"},
        store_latency_ms=(5.0, 120.0),
        has_own_streams=True,
    ),
    # The controller holds expansions back, while members crash, catch up and fall behind (A11).
    Profile(
        "held_expansions",
        weights={
            "slow_link": 5.0,
            "cut_one_way": 2.0,
            "crash_any": 4.0,
            "crash_controller": 1.0,
            "expire_session": 1.0,
        },
        left_out=0.1,
        mean_interval_ms=(100, 400),
        restart_ms=((20, 200), (20, 600)),
        properties={"isr.expand.linger.ms": "250", "replica.lag.time.max.ms": "800"},
        has_own_streams=True,
    ),
    # Operators ask any broker why replicas are out of the ISR, and why partitions have no leader.
    Profile(
        "described_replicas",
        weights={
            "crash_leader": 2.0,
            "crash_any": 4.0,
            "stop": 3.0,
            "expire_session": 1.0,
            "expire_controller": 1.0,
            "cut_two_ways": 3.0,
            "slow_link": 3.0,
        },
        left_out=0.2,
        mean_interval_ms=(100, 600),
        restart_ms=((20, 400), (200, 2_500)),
        properties={"replica.lag.time.max.ms": "700"},
        churn=("replicas_described",),
        has_own_streams=True,
    ),
    # Consumers and followers ask for many bytes and wait for long, at the ends of small segments,
    # while leaders change, logs roll and records are deleted (V61).
    Profile(
        "patient_fetches",
        weights={
            "crash_any": 2.0,
            "stop": 1.0,
            "expire_session": 1.0,
            "elect_preferred": 2.0,
            "slow_disk": 1.0,
            "slow_link": 1.0,
        },
        left_out=0.3,
        mean_interval_ms=(500, 2_000),
        restart_ms=((20, 400), (200, 1_500)),
        properties={
            "log.segment.bytes": "1500",
            "replica.fetch.min.bytes": "4000",
            "replica.fetch.wait.max.ms": "500",
        },
        churn=("records_deleted",),
        patient_fetches=True,
        has_own_streams=True,
    ),
)
