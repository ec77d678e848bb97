"""Profiles whose topics change while faults happen.

Topics are recreated, altered, lost from the store; partitions are added, removed and reassigned;
the nodes of both are edited or unreadable.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Profile

TOPICS: Final = (
    # Brokers are away while a topic is deleted and made anew.
    Profile(
        "topic_churn",
        weights={"crash_any": 5.0, "crash_leader": 1.0, "strike": 1.0, "expire_session": 1.0},
        mean_interval_ms=(500, 1_500),
        restart_ms=((800, 4_000),),
        topic_life_ms=(500, 2_000),
        recreates=1.0,
        chosen_replicas=1.0,
    ),
    # The beginnings of logs are deleted while leaders that were cut off come back with records
    # that nobody else has (V67).
    Profile(
        "thinned_logs",
        weights={
            "isolate": 4.0,
            "cut_two_ways": 3.0,
            "crash_leader": 3.0,
            "crash_any": 2.0,
            "slow_link": 2.0,
        },
        left_out=0.0,
        mean_interval_ms=(80, 350),
        restart_ms=((20, 400), (200, 1_500)),
        churn=("records_deleted",),
        has_own_streams=True,
    ),
    # The highest partition of a topic is removed and added again, while brokers are away that
    # have replicas of it, and controllers go in between (V71).
    Profile(
        "partition_removals",
        weights={
            "crash_any": 5.0,
            "crash_leader": 2.0,
            "crash_controller": 2.0,
            "strike": 2.0,
            "cut_two_ways": 2.0,
            "cut_one_way": 1.0,
            "expire_session": 2.0,
            "lose_answer": 1.0,
        },
        left_out=0.2,
        mean_interval_ms=(200, 900),
        restart_ms=((20, 400), (800, 4_000)),
        recreates=0.0,
        churn=("partitions_removed",),
        has_own_streams=True,
    ),
    # The nodes of a topic go by an operator's slip and come back; its replicas are restored
    # while brokers die, and controllers go in between (V25, V35). No data is lost with them.
    Profile(
        "mislaid_topics",
        weights={
            "cut_two_ways": 2.0,
            "cut_one_way": 1.0,
            "isolate": 1.0,
            "pause": 1.5,
            "expire_session": 2.0,
            "lose_answer": 1.0,
            "slow_link": 1.0,
            "reset_connections": 1.0,
        },
        left_out=0.2,
        mean_interval_ms=(300, 1_200),
        restart_ms=((20, 400), (200, 2_500)),
        recreates=0.0,
        churn=("topics_mislaid",),
        has_own_streams=True,
    ),
    # Links are cut while topics are deleted and made anew: commands are repeated, and the first
    # of them arrive when the link is whole again.
    Profile(
        "late_commands",
        weights={"cut_two_ways": 4.0, "cut_one_way": 4.0, "isolate": 2.0},
        left_out=0.0,
        mean_interval_ms=(200, 600),
        topic_life_ms=(300, 1_200),
        recreates=1.0,
    ),
    # Configurations and numbers of partitions change while brokers miss the notifications.
    Profile(
        "topic_changes",
        weights={
            "crash_controller": 3.0,
            "crash_any": 3.0,
            "cut_store": 3.0,
            "expire_session": 3.0,
            "strike": 3.0,
            "lose_answer": 3.0,
        },
        left_out=0.2,
        churns=True,
    ),
    # Partitions are moved to other brokers and back, while brokers and controllers come and go.
    Profile(
        "reassignments",
        weights={
            "crash_any": 3.0,
            "crash_leader": 3.0,
            "crash_controller": 3.0,
            "expire_controller": 3.0,
            "expire_session": 2.0,
            "strike": 3.0,
            "lose_answer": 2.0,
            "slow_link": 2.0,
            "cut_two_ways": 1.0,
            "elect_preferred": 1.0,
        },
        left_out=0.3,
        mean_interval_ms=(150, 800),
        restart_ms=((20, 400), (200, 2_500)),
        recreates=0.3,
        brokers=5,
        churn=("partitions_moved",),
        scenario="controller_lost_at_each_write",
        has_own_streams=True,
    ),
    # A topic's node holds nonsense for a while, and controllers come and go meanwhile (V35).
    Profile(
        "unreadable_topic",
        weights={"crash_any": 1.0, "slow_link": 1.0},
        mean_interval_ms=(1_500, 3_000),
        scenario="unreadable_topic",
    ),
    # The same with the state node of one partition: the others of its topic go on.
    Profile(
        "unreadable_partition",
        weights={"crash_any": 1.0, "slow_link": 1.0},
        mean_interval_ms=(1_500, 3_000),
        scenario="unreadable_partition",
        has_own_streams=True,
    ),
    # Somebody edits a topic's nodes in the store, rightly and wrongly, while controllers and
    # brokers come and go (V25).
    Profile(
        "edited_nodes",
        weights={
            "crash_any": 2.0,
            "crash_leader": 1.0,
            "crash_controller": 2.0,
            "expire_controller": 1.0,
            "expire_session": 1.0,
            "strike": 1.0,
            "lose_answer": 1.0,
            "late_watches": 1.0,
            "slow_link": 1.0,
        },
        left_out=0.3,
        mean_interval_ms=(400, 1_500),
        restart_ms=((20, 400), (200, 2_500)),
        recreates=0.3,
        churn=("nodes_edited",),
        has_own_streams=True,
    ),
)
