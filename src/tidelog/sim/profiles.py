"""Profiles: named biases of what happens to a run, so that what is rare comes often.

Every seed draws its own subset of a profile's kinds of faults and its own rates. What the kinds do
is told in `sim/faults`; a test holds the names here against those there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.sim.cluster import STORE_LATENCY_MS
from tidelog.sim.fault_weights import DEFAULT_WEIGHTS


@dataclass(frozen=True, slots=True)
class Profile:
    """A named bias of the faults."""

    name: str
    weights: Mapping[str, float] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    #: Share of the kinds that a seed leaves out.
    left_out: float = 0.35
    mean_interval_ms: tuple[int, int] = (250, 1_100)
    #: Ranges of the time that a dead broker stays down; a seed draws one.
    restart_ms: tuple[tuple[int, int], ...] = ((20, 400), (20, 6_000), (200, 2_500))
    #: How long the volatile topic lives until it is deleted and made anew.
    topic_life_ms: tuple[int, int] = (2_000, 9_000)
    #: Share of the seeds in which that is done at all.
    recreates: float = 0.7
    #: Share of its topics whose replicas are chosen, alive or not; others wait for all brokers.
    chosen_replicas: float = 0.5
    #: Name of a scenario to run over and over beside the drawn faults.
    scenario: str = ""
    keeps_budget: bool = True
    #: Whether what is acknowledged is kept: off where more is lost than the budget allows. Then all
    #: that is still checked: published state (epochs only rise, one leader an epoch, leaders in
    #: their ISR, one controller an epoch, no write of an expired session), no two records at one
    #: epoch and offset, no step back within a life, no consumer beyond the high watermark or given
    #: what nobody sent or what was refused, whole batches, no unforeseen error or halt of a broker,
    #: what topics, partitions, configurations and elections promise, and liveness: in a minute all
    #: is in sync, everything sent is acknowledged, every member of a group works.
    keeps_promises: bool = True
    #: What its brokers are configured with, apart from the simulator's own settings.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Whether its topics are compacted.
    compacted: bool = False
    #: Whether a topic is altered and given partitions all the time.
    churns: bool = False
    #: Share of the kinds of churn (`workload/kinds`) that a seed draws.
    churn_share: float = 0.0
    #: Kinds of churn that every seed plays.
    churn: tuple[str, ...] = ()
    #: Whether one idempotent producer writes to several partitions, as librdkafka does.
    shared_producer: bool = False
    #: What it is known to show and nobody has mended yet: searches over all profiles leave it out.
    known_defect: str = ""
    #: How many brokers there are, and replicas of each partition.
    brokers: int = 3
    replicas: int = 3
    #: Range of the delays of messages between nodes and the store.
    store_latency_ms: tuple[float, float] = STORE_LATENCY_MS
    #: Whether every kind of fault there is takes part, each as often as another; `weights` count
    #: for nothing then, and what a seed draws of one kind moves nothing of another.
    has_all_kinds: bool = False
    #: Whether each fault draws from a stream of its own, so that leaving one out moves no other.
    has_own_streams: bool = False


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("default"),
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
        # Small segments of few keys, which the cleaner is at all the time.
        Profile(
            "compaction",
            mean_interval_ms=(300, 1_100),
            properties={
                "log.segment.bytes": "1500",
                "offsets.topic.segment.bytes": "1500",
                "log.segment.delete.delay.ms": "300",
                "log.cleaner.backoff.ms": "40",
                "log.cleaner.io.buffer.size": "1024",
                "log.cleaner.dedupe.buffer.size": "2048",
                "log.cleaner.min.cleanable.ratio": "0.01",
                "log.cleaner.delete.retention.ms": "1000",
            },
            compacted=True,
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
        # The store takes its time, so that what is asked of the controller waits, while brokers
        # come and go.
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
        # Controllers are deposed with writes on their way to a store that takes its time.
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
        # Answers of the store are lost: what a controller has written is not known.
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
        Profile(
            "everything",
            left_out=0.5,
            mean_interval_ms=(60, 1_100),
            restart_ms=((20, 400), (20, 6_000), (200, 2_500)),
            properties={
                "log.cleaner.backoff.ms": "40",
                "log.cleaner.io.buffer.size": "1024",
                "log.cleaner.dedupe.buffer.size": "2048",
            },
            recreates=0.3,
            churn_share=0.4,
            has_all_kinds=True,
            has_own_streams=True,
        ),
        # Losses beyond the fault budget: any broker may lose its unsynced data at any time. Records
        # may go; nothing else may (see keeps_promises).
        Profile(
            "beyond",
            weights={
                "crash_leader": 4.0,
                "crash_any": 4.0,
                "strike": 4.0,
                "cut_two_ways": 2.0,
                "cut_store": 1.0,
                "expire_session": 1.0,
                "rolling_restart": 1.0,
                "slow_link": 1.0,
            },
            left_out=0.2,
            mean_interval_ms=(60, 600),
            restart_ms=((20, 400), (200, 1_500)),
            keeps_budget=False,
            keeps_promises=False,
            has_own_streams=True,
            churn_share=0.2,
        ),
        # The controller is lost at its first write, before and after it, at its second, and so on.
        Profile(
            "controller_writes",
            weights={"expire_session": 3.0, "crash_any": 1.0, "lose_answer": 1.0, "slow_link": 1.0},
            left_out=0.25,
            mean_interval_ms=(150, 600),
            restart_ms=((20, 400), (200, 1_500)),
            scenario="controller_lost_at_each_write",
            has_own_streams=True,
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
        # Disks are full, now for one batch and not for the next, as topics grow and come anew: what
        # a new producer writes first finds no room.
        Profile(
            "full_disks",
            weights={"full_disk": 6.0, "slow_disk": 3.0, "crash_leader": 2.0},
            left_out=0.0,
            mean_interval_ms=(100, 400),
            restart_ms=((20, 200), (20, 600)),
            topic_life_ms=(300, 1_200),
            recreates=1.0,
            churn_share=0.5,
            has_own_streams=True,
        ),
        # Consumers look offsets up and retention takes what is old while leaders move and their
        # followers are behind; processes take each other's places in a group.
        Profile(
            "lookups",
            weights={
                "slow_link": 5.0,
                "elect_preferred": 3.0,
                "crash_leader": 3.0,
                "expire_session": 2.0,
                "cut_two_ways": 2.0,
                "pause": 1.0,
            },
            left_out=0.0,
            mean_interval_ms=(100, 400),
            restart_ms=((20, 400), (200, 2_500)),
            properties={"log.retention.check.interval.ms": "60"},
            recreates=0.0,
            churn=("offsets_looked_up", "records_expire", "instances_doubled"),
            has_own_streams=True,
        ),
        # Brokers are told to stop, by themselves or together, and hand over what they lead, while
        # others and the controller fall (V43).
        Profile(
            "shutdowns",
            weights={
                "slow_link": 3.0,
                "cut_two_ways": 1.5,
                "crash_controller": 1.5,
                "crash_any": 1.0,
                "expire_session": 1.0,
                "lose_answer": 1.0,
                "slow_disk": 1.0,
            },
            left_out=0.25,
            mean_interval_ms=(300, 1_200),
            restart_ms=((20, 400), (200, 2_500)),
            properties={
                "controlled.shutdown.enable": "true",
                "controlled.shutdown.retry.backoff.ms": "300",
            },
            scenario="stop_together",
            has_own_streams=True,
        ),
        # Disks fail calls, fill up, lose what was not synced in every way, and are replaced.
        Profile(
            "failing_disks",
            weights={
                "lose_power": 4.0,
                "read_errors": 2.0,
                "write_errors": 2.0,
                "sync_errors": 3.0,
                "full_disk": 3.0,
                "short_writes": 1.5,
                "replaced_disk": 2.0,
                "slow_disk": 1.5,
                "slow_link": 1.5,
            },
            left_out=0.2,
            mean_interval_ms=(200, 800),
            restart_ms=((20, 400), (200, 2_500)),
            properties={"log.flush.interval.messages": "20"},
            has_own_streams=True,
        ),
        # Files are damaged on one broker at a time, while it is down; disks are replaced.
        Profile(
            "damaged_disks",
            weights={
                "damaged_batches": 5.0,
                "damaged_indexes": 3.0,
                "damaged_checkpoints": 3.0,
                "replaced_disk": 1.0,
                "crash_leader": 2.0,
                "stop": 3.0,
                "slow_link": 1.0,
            },
            left_out=0.2,
            mean_interval_ms=(200, 800),
            restart_ms=((20, 400), (200, 1_500)),
            properties={"log.flush.interval.messages": "20", "log.segment.bytes": "6000"},
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
        # Controllers are deposed with writes on their way, or elected without hearing of it (V42).
        Profile(
            "unlucky_elections",
            weights={"slow_link": 1.0, "crash_any": 1.0},
            left_out=0.0,
            mean_interval_ms=(500, 1_500),
            store_latency_ms=(2.0, 40.0),
            scenario="unlucky_elections",
            has_own_streams=True,
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
        # Answers of the store reach nobody: a controller does not act, and its session lives (V42).
        Profile(
            "unanswered_controllers",
            weights={"slow_link": 1.0, "crash_any": 1.0, "expire_session": 1.0},
            left_out=0.0,
            mean_interval_ms=(500, 1_500),
            properties={"controller.activity.timeout.ms": "400"},
            scenario="unanswered_controllers",
            has_own_streams=True,
        ),
        # What happens in the cluster is written to a topic of it, while all of it happens (V80).
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
        # Disks are full and ISRs small for one batch and not for those behind it, while leaders of
        # other partitions die with batches that are stored and not acknowledged. An idempotent
        # producer of all these partitions bumps its epoch for what comes out of sequence (V38).
        Profile(
            "refused_batches",
            weights={
                "full_disk": 5.0,
                "slow_disk": 2.0,
                "crash_leader": 3.0,
                "slow_link": 3.0,
                "cut_two_ways": 1.0,
                "elect_preferred": 2.0,
                "reset_connections": 3.0,
            },
            left_out=0.0,
            mean_interval_ms=(80, 350),
            restart_ms=((20, 200), (20, 600)),
            recreates=0.0,
            shared_producer=True,
            has_own_streams=True,
        ),
        # Processes stand still beyond their sessions; clients follow lists of brokers (V47, V82).
        Profile(
            "pauses",
            weights={
                "pause": 6.0,
                "expire_session": 4.0,
                "crash_any": 2.0,
                "slow_link": 2.0,
                "cut_store": 0.5,
            },
            left_out=0.1,
            mean_interval_ms=(300, 1_200),
            restart_ms=((20, 400), (200, 2_500)),
            recreates=0.3,
            churn=("brokers_followed",),
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
        # Leaders compress what they are sent.
        Profile("recompressed", properties={"compression.type": "gzip"}, has_own_streams=True),
    )
}
