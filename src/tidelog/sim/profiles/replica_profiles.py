"""Profiles that test leaders and followers.

Brokers learn late of their roles and of ISR changes. Followers fall behind. Replicas return with
fewer records than other brokers expect. Leaders are elected again and again.

In some profiles, leaders read slowly: nothing is in the page cache, and a disk read takes seconds,
while followers and producers are fast. A follower whose fetch waits for a slow read of its leader
must stay in the ISR, but a dead follower must leave it (F5 to F8).
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile, played

_PENDING: Final = "follower.fetch.pending.reads.insync.enable=true"
#: A single slow read takes longer than replica.lag.time.max.ms, and a follower waits for many of
#: them. The segments are large: a Fetch response ends at the end of a segment, so with small ones a
#: follower would not reach the leader's LEO.
_SHORT_LAG: Final = (
    "replica.lag.time.max.ms=600, replica.socket.timeout.ms=20000, log.segment.bytes=4194304"
)

REPLICAS: Final = (
    # Brokers lose data and are back before the controller learns of their death.
    Profile(
        "quick_restarts",
        faults="crash_leader 3, crash_any 2, cut_store 4, slow_link 1",
        pace=Pace(left_out=0.0, interval_ms=(80, 250), down_ms=((20, 200),)),
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
    # Leaders die while the links to their followers are slow or cut. Leaders append records that no
    # follower has, and later truncate them.
    Profile(
        "slow_followers",
        faults="slow_link 6, cut_two_ways 3, crash_leader 3",
        pace=Pace(left_out=0.0, interval_ms=(100, 400), down_ms=((200, 1_500),)),
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
    # ISR changes are slow, or leaders learn of them late, while followers fall behind and return.
    Profile(
        "late_isr",
        faults="slow_link 5, cut_one_way 4, cut_two_ways 2, crash_any 1, expire_session 1",
        pace=Pace(left_out=0.0, interval_ms=(80, 300), down_ms=((20, 60), (200, 1_500))),
        config="replica.fetch.max.bytes=300",
        store_latency_ms=(5.0, 150.0),
        shares_stream=True,
    ),
    # Disks are slow while followers crash and return, and leaders continue under new epochs. An
    # append that was planned under one epoch is written when the next epoch is about to begin.
    Profile(
        "busy_leaders",
        faults="slow_disk 6, crash_any 2, expire_session 3, slow_link 1",
        pace=Pace(left_out=0.0, interval_ms=(60, 250), down_ms=((20, 200), (20, 600))),
        shares_stream=True,
    ),
    # The only member of a partition's ISR starts without the partition's directory (D3).
    played(
        "missing_directory",
        pace=Pace(left_out=0.0, interval_ms=(2_000, 5_000), down_ms=((3_000, 5_000),)),
        recreates=0.0,
        scenario="missing_directory",
    ),
    # A former leader leads again before a follower reports that it has fewer records now (V31).
    played(
        "leader_returns",
        scenario="leader_returns",
        pace=Pace(left_out=0.0, interval_ms=(2_000, 5_000)),
    ),
    # A follower learns of a new leader before the new leader itself does (V32, V37).
    played(
        "early_follower",
        scenario="early_follower",
        pace=Pace(left_out=0.0, interval_ms=(2_000, 5_000)),
    ),
    # A leader is deposed and elected again before a follower learns of either change (V37).
    played(
        "unheard_of_return",
        scenario="unheard_of_return",
        has_groups=False,
        pace=Pace(left_out=0.0, interval_ms=(2_000, 5_000)),
    ),
    # Records of two leader epochs are truncated, and come back after a power loss.
    played(
        "two_terms_lost",
        pace=Pace(left_out=0.0, interval_ms=(2_000, 5_000)),
        # Flushes and checkpoints are so frequent that a power loss may bring back truncated records
        # and lose later writes.
        config="log.flush.interval.ms=300, replica.high.watermark.checkpoint.interval.ms=40",
        scenario="two_terms_lost",
        has_groups=False,
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
    played("every_member_ends", scenario="every_member_ends", shares_stream=True),
    played("a_host_stays_away", scenario="every_member_ends", phase="absence", shares_stream=True),
    played("older_disks", scenario="older_disk_returns", shares_stream=True),
    played("last_replica_standing", scenario="last_replica_standing", shares_stream=True),
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
    # Operators ask any broker why replicas are out of the ISR, and why partitions have no leader.
    Profile(
        "described_replicas",
        faults="crash_leader 2, crash_any 4, stop 3, expire_session 1, expire_controller 1,"
        " cut_two_ways 3, slow_link 3",
        pace=Pace(left_out=0.2, interval_ms=(100, 600), down_ms=((20, 400), (200, 2_500))),
        config="replica.lag.time.max.ms=700",
        churn=("replicas_described",),
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
    # There are no faults except slow reads. No follower may leave an ISR.
    Profile(
        "slow_leaders",
        faults="slow_reads 1",
        pace=Pace(left_out=0.0, interval_ms=(300, 1_500)),
        recreates=0.0,
        config=f"{_SHORT_LAG}, {_PENDING}",
        isr_stands=True,
        session_timeout_ms=4_000,
    ),
    # There are no faults except slow reads, and the setting that keeps waiting followers in the ISR
    # is off. Followers therefore leave ISRs; acknowledged records must survive.
    Profile(
        "slow_leaders_unaided",
        faults="slow_reads 1",
        pace=Pace(left_out=0.0, interval_ms=(300, 1_500)),
        recreates=0.0,
        config=_SHORT_LAG,
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
        config=f"{_SHORT_LAG}, {_PENDING}, replica.socket.timeout.ms=6000",
        session_timeout_ms=9_000,
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
        config=f"{_SHORT_LAG}, {_PENDING}, replica.fetch.backoff.ms=100",
        healthy_stay=True,
        session_timeout_ms=2_000,
    ),
    # Leaders whose reads hang transfer their leadership (F11).
    Profile(
        "hung_leaders",
        faults="hung_reads 4, slow_reads 1, crash_any 0.5, slow_link 0.5",
        pace=Pace(left_out=0.0, interval_ms=(600, 2_500), down_ms=((20, 400), (200, 2_500))),
        config=f"{_SHORT_LAG}, {_PENDING}, replica.socket.timeout.ms=6000,"
        " leader.relinquish.on.slow.reads.enable=true, leader.imbalance.check.interval.seconds=4,"
        " leader.imbalance.per.broker.percentage=0",
    ),
)
