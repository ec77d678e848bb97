"""Profiles aimed by hand at situations that random profiles reach too seldom, or cannot check.

The first is the default profile. Then come leaders and followers, clients and moves, the
controller and its store, slow reads, and disks. The random profiles are those of the swarm
(`sim/swarm`). A checker of some profiles assumes that some faults never happen; only an aimed
profile can promise that.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile, played

#: Configuration with which pending fetches of a follower count as progress while its leader reads
#: slowly (KIP-501).
PENDING: Final = "follower.fetch.pending.reads.insync.enable=true"
#: Configuration with which a single slow read takes longer than replica.lag.time.max.ms, and a
#: follower waits for many slow reads. A Fetch response ends at the end of a segment. With small
#: segments, a follower would never reach the leader's LEO, so the segments are large.
SHORT_LAG: Final = (
    "replica.lag.time.max.ms=600, replica.socket.timeout.ms=20000, log.segment.bytes=4194304"
)

AIMED: Final = (
    Profile("default", shares_stream=True),
    # Leaders die while the links to their followers are slow or cut. Leaders append records that no
    # follower has, and later truncate them.
    Profile(
        "slow_followers",
        faults="slow_link 6, cut_two_ways 3, crash_leader 3",
        pace=Pace(left_out=0.0, interval_ms=(100, 400), down_ms=((200, 1_500),)),
        shares_stream=True,
    ),
    # Leaders die while followers catch up batch by batch. After a leader's death, some logs end
    # above the new leader's high watermark, but below the end of the committed records.
    Profile(
        "slow_catch_up",
        faults="crash_leader 4, crash_any 2, slow_link 2",
        pace=Pace(left_out=0.0, interval_ms=(200, 600), down_ms=((20, 400), (200, 1_500))),
        config="replica.fetch.max.bytes=300",
        shares_stream=True,
    ),
    # Brokers lose data and are back before the controller learns of their death.
    Profile(
        "quick_restarts",
        faults="crash_leader 3, crash_any 2, cut_store 4, slow_link 1",
        pace=Pace(left_out=0.0, interval_ms=(80, 250), down_ms=((20, 200),)),
        shares_stream=True,
    ),
    # Leadership moves away and back, while some brokers learn of it late and keep their old roles.
    Profile(
        "late_roles",
        faults="late_roles 5, elect_preferred 8, expire_session 4, expire_controller 2,"
        " slow_link 8, cut_one_way 1",
        pace=Pace(left_out=0.0, interval_ms=(60, 250), down_ms=((20, 400), (200, 1_500))),
        shares_stream=True,
    ),
    # A former leader leads again before a follower reports that it has fewer records now (V31).
    played(
        "leader_returns",
        scenario="leader_returns",
        pace=Pace(left_out=0.0, interval_ms=(2_000, 5_000)),
    ),
    # Consumers look up offsets and retention removes old records, while leaders change and
    # followers lag. Group members in two processes take over each other's `group.instance.id`.
    Profile(
        "lookups",
        faults="slow_link 5, elect_preferred 3, crash_leader 3, expire_session 2, cut_two_ways 2,"
        " pause 1",
        pace=Pace(left_out=0.0, interval_ms=(100, 400), down_ms=((20, 400), (200, 2_500))),
        config="log.retention.check.interval.ms=60",
        recreates=0.0,
        churn=("offsets_looked_up", "records_expire", "instances_doubled"),
    ),
    # Crowds of clients take all connections of a broker, or do not read their responses.
    # Connections between brokers break at the same time, so that brokers must reconnect despite the
    # crowd (L1). Because only connections fail, and brokers restore them at once, no follower may
    # leave an ISR.
    Profile(
        "crowded",
        faults="reset_connections 1",
        pace=Pace(left_out=0.0, interval_ms=(300, 1_500)),
        recreates=0.0,
        config="max.connections=60, connections.max.idle.ms=16000,"
        " queued.max.response.bytes=65536, replica.lag.time.max.ms=600",
        churn=("crowds",),
        isr_stands=True,
        session_timeout_ms=4_000,
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
    played("every_member_ends", scenario="every_member_ends", shares_stream=True),
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
    # A peer that pretends to be the leader requests ISR changes, and gets the responses (A3).
    Profile(
        "rogue_isr_changes",
        faults="rogue_isr_change 6, slow_link 1, late_watches 1",
        leaders_hear=True,
        pace=Pace(left_out=0.0, interval_ms=(400, 1_500)),
        recreates=0.0,
        has_groups=False,
    ),
    # There are no faults except slow reads. No follower may leave an ISR.
    Profile(
        "slow_leaders",
        faults="slow_reads 1",
        pace=Pace(left_out=0.0, interval_ms=(300, 1_500)),
        recreates=0.0,
        config=f"{SHORT_LAG}, {PENDING}",
        isr_stands=True,
        session_timeout_ms=4_000,
    ),
    # Followers die, or are cut off, while their leaders read from slow disks. The session timeout
    # is longer than `replica.lag.time.max.ms`, so that the leader, not the controller, must remove
    # a dead follower from the ISR (F7).
    Profile(
        "dead_followers",
        faults="slow_reads 6, crash_any 3, crash_leader 1, reset_connections 2, cut_two_ways 1,"
        " pause 1, expire_session 0.5",
        pace=Pace(left_out=0.0, interval_ms=(300, 900), down_ms=((3_000, 6_000), (200, 5_000))),
        config=f"{SHORT_LAG}, {PENDING}, replica.socket.timeout.ms=6000",
        session_timeout_ms=9_000,
    ),
    # Calls of disks fail, disks fill up, lose unsynced data in every way, and are replaced.
    Profile(
        "failing_disks",
        faults="lose_power 4, read_errors 2, write_errors 2, sync_errors 3, full_disk 3,"
        " short_writes 1.5, replaced_disk 2, slow_disk 1.5, slow_link 1.5",
        pace=Pace(left_out=0.2, interval_ms=(200, 800), down_ms=((20, 400), (200, 2_500))),
        config="log.flush.interval.messages=20",
    ),
    # Files are damaged under a running leader, too, and consumers repeatedly read from the
    # beginning (V68).
    Profile(
        "damaged_leaders",
        faults="damaged_batches 5, damaged_indexes 3, damaged_checkpoints 3, damaged_leaders 8,"
        " replaced_disk 1, crash_leader 2, elect_preferred 3, stop 3, slow_link 1",
        pace=Pace(left_out=0.2, interval_ms=(200, 800), down_ms=((20, 400), (200, 1_500))),
        config="log.flush.interval.messages=20, log.segment.bytes=6000",
        churn=("records_reread",),
        scenario="damaged_member",
    ),
    # Log directories are slow for seconds: one by one, all directories of a broker, or all
    # directories of the cluster. Brokers report slow directories, move leaders away, or give the
    # directories up (D13). The controller soon forgets brokers' reports about slow directories, so
    # brokers must repeat the reports.
    Profile(
        "slow_directories",
        faults="slow_directory 8, crash_leader 2, stop 1.5, lose_power 1, fill_directory 1,"
        " expire_session 1, elect_preferred 2, crash_controller 1, slow_link 1",
        pace=Pace(left_out=0.1, interval_ms=(300, 1_500), down_ms=((20, 400), (200, 2_500))),
        churn_share=0.3,
        config="log.dir.slow.threshold.ms=4, log.dir.slow.window.ms=300,"
        " leader.imbalance.check.interval.seconds=1, log.flush.interval.messages=20,"
        " log.segment.bytes=6000",
        drawn_properties={
            "log.dir.slow.action": ("demote", "demote", "demote", "report", "cordon", "offline")
        },
        log_dirs=(1, 2),
        phase="slow directory",
    ),
    # Brokers have two or three log directories. One directory at a time, disks are slow, full,
    # damaged or replaced, their calls fail, or they lose unsynced data.
    Profile(
        "jbod",
        faults="crash_leader 2, stop 1.5, strike 1.5, expire_session 1, crash_controller 0.5,"
        " elect_preferred 1, slow_link 1, slow_disk 2, slow_reads 1, lose_power 2,"
        " lose_power_at_sync 1, read_errors 2, write_errors 2, sync_errors 2, full_disk 2,"
        " short_writes 1, replaced_disk 2, fail_directory 3, fail_operation 3, damaged_batches 1,"
        " damaged_indexes 1, damaged_checkpoints 1, damaged_leaders 1",
        pace=Pace(left_out=0.2, interval_ms=(300, 1_200), down_ms=((20, 400), (200, 2_500))),
        config="log.flush.interval.messages=20, log.segment.bytes=6000",
        churn=("directories_changed",),
        brokers=4,
        log_dirs=(2, 3),
        phase="offline directory",
    ),
)
