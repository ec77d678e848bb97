"""Profiles with faults of disks.

Disks are full, slow or damaged, their calls fail, unsynced data is lost, or disks are replaced.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile
from tidelog.wire.registry import RELINQUISH_LEADERSHIP, REQUEST_COMMANDS

DISKS: Final = (
    # Full disks reject one batch and accept the next, while topics grow and are recreated. The disk
    # may have no room even for the first batch of a new producer.
    Profile(
        "full_disks",
        faults="full_disk 6, slow_disk 3, crash_leader 2",
        pace=Pace(left_out=0.0, interval_ms=(100, 400), down_ms=((20, 200), (20, 600))),
        topic_life_ms=(300, 1_200),
        recreates=1.0,
        churn_share=0.5,
    ),
    # Calls of disks fail, disks fill up, lose unsynced data in every way, and are replaced.
    Profile(
        "failing_disks",
        faults="lose_power 4, read_errors 2, write_errors 2, sync_errors 3, full_disk 3,"
        " short_writes 1.5, replaced_disk 2, slow_disk 1.5, slow_link 1.5",
        pace=Pace(left_out=0.2, interval_ms=(200, 800), down_ms=((20, 400), (200, 2_500))),
        config="log.flush.interval.messages=20",
    ),
    # Records are committed only once they are synced (V69). The power of all brokers fails
    # repeatedly, while disks are slow or fail syncs.
    Profile(
        "power_failures",
        faults="lose_power 2, crash_leader 2, sync_errors 1, slow_disk 2, slow_link 2,"
        " cut_two_ways 1, expire_session 1, elect_preferred 1, stop 1",
        pace=Pace(left_out=0.2, interval_ms=(300, 1_500), down_ms=((20, 400), (200, 1_500))),
        config="flush.before.ack=true, log.segment.bytes=6000",
        scenario="power_fails_everywhere",
    ),
    # The setting `flush.before.ack` of a topic is switched on and off; while it is on, records are
    # committed only after they are synced (V69). A checker compares each commit with the disks of
    # the maximal ISR.
    Profile(
        "flush_policies",
        faults="lose_power 3, crash_leader 2, slow_disk 4, slow_link 2, cut_two_ways 1,"
        " cut_store 2, expire_session 1, elect_preferred 3",
        pace=Pace(left_out=0.2, interval_ms=(200, 900), down_ms=((20, 400), (200, 1_500))),
        config="log.segment.bytes=6000",
        churn=("flush_policy_changed",),
    ),
    # The power fails after a segment was rolled, before any of it is synced. Replicas are recreated
    # repeatedly, so that the unsynced segment is often the first of its log.
    Profile(
        "rolled_segments",
        faults="lose_power_at_sync 6, slow_disk 2, replaced_disk 2, crash_leader 1, slow_link 1",
        pace=Pace(left_out=0.0, interval_ms=(100, 600), down_ms=((20, 400), (200, 1_500))),
        topic_life_ms=(300, 1_500),
        recreates=1.0,
        config="log.segment.bytes=1500",
    ),
    # Files are damaged on one stopped broker at a time; disks are replaced.
    Profile(
        "damaged_disks",
        faults="damaged_batches 5, damaged_indexes 3, damaged_checkpoints 3, replaced_disk 1,"
        " crash_leader 2, stop 3, slow_link 1",
        pace=Pace(left_out=0.2, interval_ms=(200, 800), down_ms=((20, 400), (200, 1_500))),
        config="log.flush.interval.messages=20, log.segment.bytes=6000",
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
    # Files are damaged, and the controller, like Kafka's, has no request by which a leader with a
    # damaged log can leave the ISR. Brokers therefore report a damaged replica as offline (V68).
    Profile(
        "damaged_leaders_offline",
        faults="damaged_batches 4, damaged_leaders 8, crash_leader 2, crash_controller 1,"
        " expire_session 1, elect_preferred 2, stop 2, slow_link 1",
        pace=Pace(left_out=0.2, interval_ms=(200, 800), down_ms=((20, 400), (200, 1_500))),
        config="log.flush.interval.messages=20, log.segment.bytes=6000",
        churn=("records_reread",),
        withheld_apis=(RELINQUISH_LEADERSHIP, REQUEST_COMMANDS),
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
    # Replicas move between the log directories of their brokers all the time, throttled or not
    # (D11). During moves, brokers die with and without their unsynced data, directories fail and
    # return, disks are full, leaders change, and topics are deleted and created again. The setting
    # `flush.before.ack` of one topic changes (V69).
    Profile(
        "directory_moves",
        faults="crash_leader 2, stop 1.5, strike 3, expire_session 1, crash_controller 0.5,"
        " elect_preferred 2, slow_link 1, slow_disk 2, slow_reads 1, lose_power 3,"
        " lose_power_at_sync 1, read_errors 0.5, write_errors 1, sync_errors 1, full_disk 2,"
        " short_writes 1, replaced_disk 1, fail_directory 2, fail_operation 4,"
        " strike_directory_move 4, damaged_batches 0.5, damaged_leaders 0.5",
        pace=Pace(left_out=0.3, interval_ms=(300, 1_500), down_ms=((20, 400), (200, 2_500))),
        topic_life_ms=(500, 4_000),
        config="log.flush.interval.messages=20, log.segment.bytes=6000,"
        " replica.fetch.max.bytes=1200",
        churn=("directories_changed", "flush_policy_changed"),
        churn_share=0.3,
        brokers=4,
        log_dirs=(2, 3),
        phase="offline directory",
    ),
    # Operators drain log directories and cancel drains, and brokers balance their volumes by
    # themselves (D12, D15). During drains, brokers die at any step, target directories fail and
    # fill up, leaders change, and topics come and go. At the end, drained directories must be
    # empty.
    Profile(
        "drained_directories",
        faults="crash_leader 2, stop 1.5, strike 2, expire_session 1, crash_controller 0.5,"
        " elect_preferred 2, slow_disk 1, lose_power 2, write_errors 0.5, full_disk 2,"
        " fill_directory 3, replaced_disk 0.5, fail_directory 2, strike_directory_move 4",
        pace=Pace(left_out=0.3, interval_ms=(300, 1_500), down_ms=((20, 400), (200, 2_500))),
        topic_life_ms=(500, 4_000),
        config="log.dir.reserve.bytes=3000, log.flush.interval.messages=20,"
        " log.segment.bytes=6000, replica.fetch.max.bytes=1200,"
        " log.dir.balance.threshold.percent=1, log.dir.balance.check.interval.seconds=1",
        churn=("directories_drained",),
        churn_share=0.2,
        brokers=4,
        log_dirs=(2, 3, 3),
        disk_bytes=2_000_000,
    ),
    # Log directories are full for seconds, one by one or on all brokers at once, and are read-only
    # until they are freed (D14). Retention and deletions of records free space. Brokers with one or
    # two log directories restart while a directory is full.
    Profile(
        "full_directories",
        faults="fill_directory 8, full_disk 1, crash_leader 2, stop 2, lose_power 1, slow_disk 1,"
        " expire_session 1, elect_preferred 2, crash_controller 0.5",
        pace=Pace(left_out=0.1, interval_ms=(300, 1_500), down_ms=((20, 400), (200, 2_500))),
        churn_share=0.3,
        config="log.dir.reserve.bytes=3000, log.flush.interval.messages=20,"
        " log.segment.bytes=6000, log.retention.check.interval.ms=500",
        log_dirs=(1, 2),
        phase="full directory",
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
    # Records have no timestamps and retention is short; a record's age counts from the last write
    # to its segment's file (D21). Brokers die and lose unsynced data, and replicas move between log
    # directories.
    Profile(
        "untimed_records",
        faults="crash_leader 3, stop 2, strike 1, lose_power 2, slow_disk 1, elect_preferred 1,"
        " cut_two_ways 1, slow_link 1",
        pace=Pace(left_out=0.2, interval_ms=(300, 1_500), down_ms=((20, 400), (200, 1_500))),
        recreates=0.0,
        config="log.flush.interval.messages=20, log.retention.check.interval.ms=200",
        churn=("untimed_records", "directories_changed"),
        log_dirs=(1, 2),
    ),
    # Devices of log directories hang for seconds or for good, one directory at a time (D13). A
    # broker gives up a hanging directory and continues with its good directories; a hang of the
    # last directory ends the broker.
    Profile(
        "hanging_directories",
        faults="hang_directory 6, slow_disk 1, crash_leader 1, stop 1.5, expire_session 1,"
        " elect_preferred 2, crash_controller 0.5, slow_link 1",
        pace=Pace(left_out=0.1, interval_ms=(600, 2_500), down_ms=((20, 400), (200, 2_500))),
        config="log.flush.interval.messages=20, log.segment.bytes=6000",
        brokers=4,
        log_dirs=(2, 3),
    ),
    # Sessions end right after they begin, during starts and registrations of brokers, while log
    # directories are slow or hang. A broker whose session ended must register again, although its
    # log directories are slow or hang (V4, D13).
    Profile(
        "short_sessions",
        faults="hang_directory 3, slow_disk 4, stop 1, crash_controller 0.5, lose_answer 1,"
        " cut_store 0.5, slow_link 1",
        pace=Pace(left_out=0.2, interval_ms=(400, 2_000), down_ms=((20, 400), (200, 1_500))),
        log_dirs=(2, 3),
        scenario="sessions_end_early",
    ),
    # A batch is rejected because a disk is full or the ISR is too small, and later batches are
    # accepted. Meanwhile, leaders of other partitions die with batches that are stored but not
    # acknowledged. One idempotent producer writes to all partitions, and bumps its epoch if a batch
    # is out of sequence (V38).
    Profile(
        "refused_batches",
        faults="full_disk 5, slow_disk 2, crash_leader 3, slow_link 3, cut_two_ways 1,"
        " elect_preferred 2, reset_connections 3",
        pace=Pace(left_out=0.0, interval_ms=(80, 350), down_ms=((20, 200), (20, 600))),
        recreates=0.0,
        shared_producer=True,
    ),
    # An idempotent producer sends a new batch to a new leader before it resends the batches that
    # the former leader rejected. If this made the producer bump its epoch, batches of other
    # partitions would be stored twice (V38).
    Profile(
        "overtaken_batches",
        faults="elect_preferred 5, slow_link 3, crash_leader 2, expire_session 2, stop 2,"
        " reset_connections 1",
        pace=Pace(left_out=0.0, interval_ms=(80, 350), down_ms=((20, 200), (20, 600))),
        recreates=0.0,
        shared_producer=True,
        overtaking_share=0.7,
    ),
)
