"""Profiles whose topics change while faults happen.

Topics are recreated and altered, and their nodes disappear from the store. Partitions are added,
removed and reassigned. Store nodes of topics and partitions are edited or unreadable.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile

TOPICS: Final = (
    # Brokers are down while a topic is deleted and recreated.
    Profile(
        "topic_churn",
        faults="crash_any 5, crash_leader 1, strike 1, expire_session 1",
        pace=Pace(interval_ms=(500, 1_500), down_ms=((800, 4_000),)),
        topic_life_ms=(500, 2_000),
        recreates=1.0,
        chosen_replicas=1.0,
        shares_stream=True,
    ),
    # Records at the beginning of logs are deleted, while leaders that were isolated come back with
    # records that no other replica has (V67).
    Profile(
        "thinned_logs",
        faults="isolate 4, cut_two_ways 3, crash_leader 3, crash_any 2, slow_link 2",
        pace=Pace(left_out=0.0, interval_ms=(80, 350), down_ms=((20, 400), (200, 1_500))),
        churn=("records_deleted",),
    ),
    # The highest partition of a topic is removed and added again, while brokers with its replicas
    # are down and controllers fail (V71).
    Profile(
        "partition_removals",
        faults="crash_any 5, crash_leader 2, crash_controller 2, strike 2, cut_two_ways 2,"
        " cut_one_way 1, expire_session 2, lose_answer 1",
        pace=Pace(left_out=0.2, interval_ms=(200, 900), down_ms=((20, 400), (800, 4_000))),
        recreates=0.0,
        churn=("partitions_removed",),
    ),
    # An operator deletes the store nodes of a topic by mistake and restores them. Replicas are
    # restored while brokers and controllers fail without a loss of data (V25, V35).
    Profile(
        "mislaid_topics",
        faults="cut_two_ways 2, cut_one_way 1, isolate 1, pause 1.5, expire_session 2,"
        " lose_answer 1, slow_link 1, reset_connections 1",
        pace=Pace(left_out=0.2, interval_ms=(300, 1_200), down_ms=((20, 400), (200, 2_500))),
        recreates=0.0,
        churn=("topics_mislaid",),
    ),
    # Links are cut while topics are deleted and recreated. While a link is cut, the controller
    # repeats its commands; the first attempts arrive only when the link is healed.
    Profile(
        "late_commands",
        faults="cut_two_ways 4, cut_one_way 4, isolate 2",
        pace=Pace(left_out=0.0, interval_ms=(200, 600)),
        topic_life_ms=(300, 1_200),
        recreates=1.0,
        shares_stream=True,
    ),
    # Configurations and partition counts change while brokers miss the notifications.
    Profile(
        "topic_changes",
        faults="crash_controller 3, crash_any 3, cut_store 3, expire_session 3, strike 3,"
        " lose_answer 3",
        pace=Pace(left_out=0.2),
        churns=True,
        shares_stream=True,
    ),
    # Partitions move to other brokers and back, while brokers and controllers fail and return.
    Profile(
        "reassignments",
        faults="crash_any 3, crash_leader 3, crash_controller 3, expire_controller 3,"
        " expire_session 2, strike 3, lose_answer 2, slow_link 2, cut_two_ways 1,"
        " elect_preferred 1",
        pace=Pace(left_out=0.3, interval_ms=(150, 800), down_ms=((20, 400), (200, 2_500))),
        recreates=0.3,
        brokers=5,
        churn=("partitions_moved",),
        scenario="controller_lost_at_each_write",
    ),
    # Reassignments get another target as soon as the first of their new replicas is in sync (R10).
    Profile(
        "redirected_moves",
        faults="slow_link 3, slow_disk 2, crash_any 0.5, expire_controller 0.3",
        pace=Pace(left_out=0.3, interval_ms=(400, 1_500)),
        recreates=0.0,
        brokers=5,
        churn=("moves_redirected",),
    ),
    # Reassignments wait in a queue, are frozen, and are requested by store nodes (R8, R11, R12).
    Profile(
        "queued_moves",
        faults="crash_any 2, crash_controller 4, expire_controller 3, expire_session 1, strike 3,"
        " lose_answer 3",
        pace=Pace(left_out=0.3, interval_ms=(400, 1_500), down_ms=((20, 400), (200, 2_500))),
        recreates=0.3,
        brokers=5,
        churn=("moves_queued",),
        # With min.insync.replicas 3, reassignments pause when a member of the ISR restarts.
        config="reassignment.max.concurrent.partitions=2,"
        " reassignment.max.concurrent.partitions.per.broker=1, min.insync.replicas=3",
        scenario="controller_lost_at_each_write",
    ),
    # Partitions move while rates of the replication throttle are set, changed and removed, also for
    # brokers that are down (R15). Fetch responses are small, so that the throttle delays replicas
    # often.
    Profile(
        "throttled_moves",
        faults="crash_any 2, crash_leader 1, expire_session 1, slow_link 1, cut_two_ways 1,"
        " reset_connections 1",
        pace=Pace(left_out=0.3, interval_ms=(600, 2_000), down_ms=((20, 400), (200, 2_500))),
        recreates=0.0,
        brokers=5,
        config="replica.fetch.max.bytes=1000, replica.fetch.response.max.bytes=4000,"
        " replication.quota.window.num=3",
        churn=("moves_throttled", "throttles_changed"),
        throttles=True,
    ),
    # A topic is deleted and created again while groups have committed offsets for it, and while
    # their coordinators die and move (G6).
    Profile(
        "recreated_offsets",
        faults="crash_leader 4, crash_any 3, crash_controller 1, elect_preferred 2, slow_link 3,"
        " cut_two_ways 1, expire_session 1",
        pace=Pace(left_out=0.2, interval_ms=(100, 500), down_ms=((20, 400), (200, 2_500))),
        recreates=0.0,
        churn=("offsets_of_recreated_topics",),
    ),
    # A topic's store node is unreadable for a while, and controllers change meanwhile (V35).
    Profile(
        "unreadable_topic",
        faults="crash_any 1, slow_link 1",
        pace=Pace(interval_ms=(1_500, 3_000)),
        scenario="unreadable_topic",
        shares_stream=True,
    ),
    # The state node of one partition is unreadable; the other partitions of the topic must
    # continue.
    Profile(
        "unreadable_partition",
        faults="crash_any 1, slow_link 1",
        pace=Pace(interval_ms=(1_500, 3_000)),
        scenario="unreadable_partition",
    ),
    # An operator edits a topic's nodes in the store, correctly and incorrectly, while controllers
    # and brokers fail and return (V25).
    Profile(
        "edited_nodes",
        faults="crash_any 2, crash_leader 1, crash_controller 2, expire_controller 1,"
        " expire_session 1, strike 1, lose_answer 1, late_watches 1, slow_link 1",
        pace=Pace(left_out=0.3, interval_ms=(400, 1_500), down_ms=((20, 400), (200, 2_500))),
        recreates=0.3,
        churn=("nodes_edited",),
    ),
)
