"""Starting points of the swarm: profiles whose settings only make sense together.

A seed of the swarm (`sim/swarm`) may draw a starting point or an aimed profile, and then changes
some of its settings. A
starting point can be run by its name, but no test runs a seed of each.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.aimed_profiles import PENDING, SHORT_LAG
from tidelog.sim.profiles.profile import Pace, Profile, played
from tidelog.wire.registry import RELINQUISH_LEADERSHIP, REQUEST_COMMANDS

STARTS: Final = (
    # Configurations and partition counts change while brokers miss the store's notices of the
    # changes.
    Profile(
        "topic_changes",
        faults="crash_controller 3, crash_any 3, cut_store 3, expire_session 3, strike 3,"
        " lose_answer 3",
        pace=Pace(left_out=0.2),
        churns=True,
        shares_stream=True,
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
    # Requests for ISR changes get no response, while other members fall behind and catch up.
    # Leaders then request newer ISR changes, although the outcome of the older ones is unknown
    # (A8).
    Profile(
        "superseded_changes",
        faults="slow_link 6, cut_one_way 4, reset_connections 4, crash_any 2, crash_controller 1,"
        " expire_session 1",
        pace=Pace(left_out=0.1, interval_ms=(60, 250), down_ms=((20, 200), (20, 600))),
        config="request.timeout.ms=150, replica.lag.time.max.ms=600",
        store_latency_ms=(5.0, 120.0),
    ),
    # The controller delays ISR expansions, while members crash, catch up and fall behind (A11).
    Profile(
        "held_expansions",
        faults="slow_link 5, cut_one_way 2, crash_any 4, crash_controller 1, expire_session 1",
        pace=Pace(left_out=0.1, interval_ms=(100, 400), down_ms=((20, 200), (20, 600))),
        config="isr.expand.linger.ms=250, replica.lag.time.max.ms=800",
    ),
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
    # Small segments with few keys, which the cleaner compacts all the time.
    Profile(
        "compaction",
        pace=Pace(interval_ms=(300, 1_100)),
        config="log.segment.bytes=1500, offsets.topic.segment.bytes=1500,"
        " log.segment.delete.delay.ms=300, log.cleaner.backoff.ms=40,"
        " log.cleaner.io.buffer.size=1024, log.cleaner.dedupe.buffer.size=2048,"
        " log.cleaner.min.cleanable.ratio=0.01, log.cleaner.delete.retention.ms=1000",
        compacted=True,
        shares_stream=True,
    ),
    # Fetches of consumers and followers wait long for many bytes, often at the end of a small
    # segment, while leaders change, logs roll and records are deleted (V61).
    Profile(
        "patient_fetches",
        faults="crash_any 2, stop 1, expire_session 1, elect_preferred 2, slow_disk 1, slow_link 1",
        pace=Pace(left_out=0.3, interval_ms=(500, 2_000), down_ms=((20, 400), (200, 1_500))),
        config="log.segment.bytes=1500, replica.fetch.min.bytes=4000,"
        " replica.fetch.wait.max.ms=500",
        churn=("records_deleted",),
        patient_fetches=True,
    ),
    # Brokers die while leaders read from slow disks for other followers. The controller removes the
    # dead members from the ISRs, and the same leaders continue under new leader epochs (F7). The
    # healthy followers must stay in the ISRs.
    Profile(
        "readers_led_on",
        faults="slow_reads 4, crash_any 1, stop 1, expire_session 0.5",
        pace=Pace(left_out=0.0, interval_ms=(400, 1_500), down_ms=((200, 1_000), (1_000, 3_000))),
        recreates=0.0,
        # If a fetch reaches a leader that does not know the new epoch yet, this backoff lets the
        # follower repeat the fetch within `replica.lag.time.max.ms`.
        config=f"{SHORT_LAG}, {PENDING}, replica.fetch.backoff.ms=100",
        healthy_stay=True,
        session_timeout_ms=2_000,
    ),
    # Leaders whose reads hang transfer their leadership (F11).
    Profile(
        "hung_leaders",
        faults="hung_reads 4, slow_reads 1, crash_any 0.5, slow_link 0.5",
        pace=Pace(left_out=0.0, interval_ms=(600, 2_500), down_ms=((20, 400), (200, 2_500))),
        config=f"{SHORT_LAG}, {PENDING}, replica.socket.timeout.ms=6000,"
        " leader.relinquish.on.slow.reads.enable=true, leader.imbalance.check.interval.seconds=4,"
        " leader.imbalance.per.broker.percentage=0",
    ),
    # The configuration allows unclean leader election (V13). Committed records may be lost, but all
    # other invariants hold.
    Profile(
        "unclean_elections",
        faults="crash_leader 1, crash_any 1, crash_controller 1, expire_controller 1,"
        " cut_two_ways 1, lose_answer 2, slow_link 2",
        pace=Pace(left_out=0.3, interval_ms=(1_500, 4_000), down_ms=((3_000, 5_000), (800, 4_000))),
        config="replica.lag.time.max.ms=700, unclean.leader.election.enable=true,"
        " cluster.events.enable=true",
        scenario="left_behind",
        keeps_budget=False,
        keeps_promises=False,
    ),
    # Files are damaged on one stopped broker at a time; disks are replaced.
    Profile(
        "damaged_disks",
        faults="damaged_batches 5, damaged_indexes 3, damaged_checkpoints 3, replaced_disk 1,"
        " crash_leader 2, stop 3, slow_link 1",
        pace=Pace(left_out=0.2, interval_ms=(200, 800), down_ms=((20, 400), (200, 1_500))),
        config="log.flush.interval.messages=20, log.segment.bytes=6000",
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
    # Controllers are deposed with writes in flight to a slow store.
    Profile(
        "controller_moves",
        faults="expire_controller 6, expire_session 3, crash_leader 2, slow_link 1",
        pace=Pace(left_out=0.0, interval_ms=(80, 300), down_ms=((20, 400),)),
        store_latency_ms=(2.0, 80.0),
        shares_stream=True,
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
    # A controller gets no response of the store, so it does not act, but it keeps its session
    # (V42).
    Profile(
        "unanswered_controllers",
        faults="slow_link 1, crash_any 1, expire_session 1",
        pace=Pace(left_out=0.0, interval_ms=(500, 1_500)),
        config="controller.activity.timeout.ms=400",
        scenario="unanswered_controllers",
    ),
    # Responses of the store are lost, so a controller does not know the outcome of its writes.
    Profile(
        "lost_answers",
        faults="lose_answer 6, lose_request 6, crash_leader 2, expire_session 2, slow_link 1",
        pace=Pace(left_out=0.0, interval_ms=(60, 250), down_ms=((20, 400), (200, 1_500))),
        shares_stream=True,
    ),
    # The controller returns leadership to preferred replicas all the time, while the replicas
    # crash, return and catch up (V46).
    Profile(
        "balance",
        faults="crash_any 1, crash_controller 0.3, elect_preferred 2, expire_session 1,"
        " slow_link 4, cut_two_ways 2, lose_answer 1",
        pace=Pace(left_out=0.3, interval_ms=(500, 2_000), down_ms=((20, 400), (200, 1_500))),
        config="leader.imbalance.check.interval.seconds=1,"
        " leader.imbalance.per.broker.percentage=0, replica.fetch.max.bytes=300",
        scenario="brokers_catch_up",
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
    # A follower without a registration catches up, loses its power and returns (V63, E5).
    played(
        "direct_unregistered_fetches",
        pace=Pace(interval_ms=(2_000, 5_000), down_ms=((20, 400),)),
        scenario="unregistered_fetches",
        has_groups=False,
        protocol_levels=("2.6",),
        shares_stream=True,
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
    played("a_host_stays_away", scenario="every_member_ends", phase="absence", shares_stream=True),
    # A follower learns of a new leader before the new leader itself does (V32, V37).
    played(
        "early_follower",
        scenario="early_follower",
        pace=Pace(left_out=0.0, interval_ms=(2_000, 5_000)),
    ),
    # Records at the beginning of logs are deleted, while leaders that were isolated come back with
    # records that no other replica has (V67).
    Profile(
        "thinned_logs",
        faults="isolate 4, cut_two_ways 3, crash_leader 3, crash_any 2, slow_link 2",
        pace=Pace(left_out=0.0, interval_ms=(80, 350), down_ms=((20, 400), (200, 1_500))),
        churn=("records_deleted",),
    ),
    # Disks are slow while followers crash and return, and leaders continue under new epochs. An
    # append that was planned under one epoch is written when the next epoch is about to begin.
    Profile(
        "busy_leaders",
        faults="slow_disk 6, crash_any 2, expire_session 3, slow_link 1",
        pace=Pace(left_out=0.0, interval_ms=(60, 250), down_ms=((20, 200), (20, 600))),
        shares_stream=True,
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
    # Registrations are deleted by hand, while their brokers keep their sessions (V4).
    Profile(
        "removed_registrations",
        faults="remove_registration 6, expire_session 1, crash_any 1, slow_link 2, lose_answer 1,"
        " cut_store 1",
        pace=Pace(left_out=0.2, interval_ms=(200, 900), down_ms=((20, 400), (200, 1_500))),
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
    # A leader is deposed and elected again before a follower learns of either change (V37).
    played(
        "unheard_of_return",
        scenario="unheard_of_return",
        has_groups=False,
        pace=Pace(left_out=0.0, interval_ms=(2_000, 5_000)),
    ),
)
