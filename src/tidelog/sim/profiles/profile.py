"""The definition of a profile, a named bias of a run's events.

A profile sets the weights of kinds of faults and their frequency. It also sets the work of the
clients, the configuration of the brokers and the delays of the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.sim.broker_settings import STORE_LATENCY_MS
from tidelog.sim.disk import DEFAULT_CAPACITY_BYTES
from tidelog.sim.profiles.fault_weights import DEFAULT_WEIGHTS


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
    #: Range of the time in ms until the volatile topic is deleted and recreated.
    topic_life_ms: tuple[int, int] = (2_000, 9_000)
    #: Share of the seeds that recreate the volatile topic.
    recreates: float = 0.7
    #: Share of recreated topics with an explicit assignment, which may name dead brokers. The
    #: creation of other topics needs all brokers.
    chosen_replicas: float = 0.5
    #: Name of a scenario to play over and over beside the drawn faults.
    scenario: str = ""
    #: Whether one broker stays away after the faults until the others lead what they can (E6).
    has_absentee: bool = False
    #: Whether one log directory fails after the faults until others lead its partitions (D4).
    has_offline_directory: bool = False
    #: Whether log directories are full after the faults, of one broker or of all (D14).
    has_full_directory: bool = False
    #: Whether log directories are slow after the faults (D13).
    has_slow_directory: bool = False
    keeps_budget: bool = True
    #: Whether acknowledged records must survive; False where losses exceed the budget. Then these
    #: invariants are still checked: published state (epochs never go back, one leader an epoch,
    #: leaders in their ISR, one controller an epoch, no write of an expired session); no two
    #: records at one epoch and offset; no epoch goes back within an incarnation; no consumer gets
    #: records above the high watermark, records that no client sent, or rejected records; whole
    #: batches; no unexpected error or halt of a broker; the promises of topics, partitions,
    #: configurations and elections. Liveness is checked, too: within a minute all replicas are in
    #: sync, everything sent is acknowledged, and every member of a group works.
    keeps_promises: bool = True
    #: Whether each follower is healthy throughout, so that none may leave an ISR (F5).
    isr_stands: bool = False
    #: Whether no fault delays the controller's commands for seconds, so that every leader knows its
    #: published ISR (A9).
    leaders_hear: bool = False
    #: Whether a follower that has kept up with a leader stays in the ISR for as long as both live,
    #: whatever becomes of other brokers (F7).
    healthy_stay: bool = False
    #: Whether rates of the replication throttle change, and brokers are checked for it (R15).
    throttles: bool = False
    #: Whether consumers ask for many bytes and wait long, and waiting fetches are checked (V61).
    patient_fetches: bool = False
    #: Whether responses that wait for the next leader are checked (V83).
    watches_leader_waits: bool = False
    #: Session timeout of the brokers, which the store does not shorten; 0: a seed draws both.
    session_timeout_ms: int = 0
    #: Configuration of the brokers, beside the simulator's own settings.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Values of further keys, of which a seed draws one for all brokers.
    drawn_properties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Whether the topics are compacted.
    compacted: bool = False
    #: Whether an administrator alters a topic and adds partitions all the time.
    churns: bool = False
    #: Share of the kinds of churn (`workload/churn_kinds`) that a seed draws.
    churn_share: float = 0.0
    #: Kinds of churn that every seed plays.
    churn: tuple[str, ...] = ()
    #: Whether consumer groups take part. Offsets are judged as if no session ended before its
    #: broker can know. So groups stay away where the session of a broker ends that is cut off.
    has_groups: bool = True
    #: Whether one idempotent producer writes to several partitions, as librdkafka does.
    shared_producer: bool = False
    #: How often that producer sends a new batch to a new leader before it resends refused ones, as
    #: a share of the changes of leader.
    overtaking_share: float = 0.0
    #: A known defect that the profile shows; searches over all profiles leave the profile out.
    known_defect: str = ""
    #: Number of brokers, and of replicas of each partition.
    brokers: int = 3
    replicas: int = 3
    #: Numbers of log directories, of which a seed draws one for all brokers.
    log_dirs: tuple[int, ...] = (1,)
    #: APIs that no broker serves, because Kafka's controllers do not.
    withheld_apis: tuple[int, ...] = ()
    #: Size of each disk, of which all replicas of a broker take a part that can be balanced (D15).
    disk_bytes: int = DEFAULT_CAPACITY_BYTES
    #: Levels of the protocol between brokers; each broker draws one. Empty: the newest (A12).
    protocol_levels: tuple[str, ...] = ()
    #: Range of the delays of messages between nodes and the store, in ms.
    store_latency_ms: tuple[float, float] = STORE_LATENCY_MS
    #: Whether all kinds of faults take part, with equal probability. `weights` are then ignored,
    #: and a seed's draws for one kind do not change those for another.
    has_all_kinds: bool = False
    #: Whether each fault draws from its own stream, so that its omission changes no other fault.
    has_own_streams: bool = False
