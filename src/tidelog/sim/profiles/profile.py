"""The definition of a profile: named settings of a run that make certain events frequent.

A profile sets which faults happen, and how often. A profile also sets what the clients do, the
configuration of the brokers and the delays of the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Final

from tidelog.sim.disk import DEFAULT_CAPACITY_BYTES


def weights(text: str) -> dict[str, float]:
    """Return the weights of kinds of faults that a text lists: `crash_leader 3, strike 0.5`."""
    pairs = (entry.split() for entry in text.split(","))
    return {kind: float(weight) for kind, weight in pairs}


def properties_of(text: str) -> dict[str, str]:
    """Return the configuration that a text lists: `log.segment.bytes=6000, broker.id=1`."""
    return dict(each.strip().partition("=")[::2] for each in text.split(","))


#: Default weight (relative frequency) of each kind of fault that a profile does not name. A seed
#: multiplies each weight by a random factor, and leaves some kinds of faults out.
DEFAULT_WEIGHTS: Final[Mapping[str, float]] = weights(
    "strike 5, crash_leader 3, crash_any 2, crash_controller 1.5, stop 1.5, cut_one_way 2,"
    " cut_two_ways 2, isolate 1.5, cut_store 1.5, slow_link 2, pause 2.5, expire_session 3,"
    " lose_answer 2, lose_request 1, slow_disk 1.5, reset_connections 1.5"
)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often faults happen, and for how long a dead broker stays down."""

    #: Share of the kinds of faults that a seed leaves out.
    left_out: float = 0.35
    #: Shortest and longest mean time in ms between faults; each seed draws its mean time from this
    #: range.
    interval_ms: tuple[int, int] = (250, 1_100)
    #: Ranges of the time in ms until a dead broker is started again; each seed draws one of the
    #: ranges.
    down_ms: tuple[tuple[int, int], ...] = ((20, 400), (20, 6_000), (200, 2_500))


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile: settings that make some faults, and some work of clients, more frequent.

    The argument `faults` is a text from which `weights` is made: `crash_leader 3, strike 0.5`. The
    argument `config` is a text from which `properties` is made: `log.segment.bytes=6000,
    replica.lag.time.max.ms=700`.
    """

    name: str
    #: Name of the profile that a seed of the swarm has changed (`sim/swarm`); empty for other
    #: profiles.
    base: str = field(default="", kw_only=True)
    faults: InitVar[str] = ""
    config: InitVar[str] = ""
    weights: Mapping[str, float] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    pace: Pace = Pace()
    #: Shortest and longest time in ms until the topic `volatile` is deleted and recreated.
    topic_life_ms: tuple[int, int] = (2_000, 9_000)
    #: Share of the seeds that recreate the topic `volatile`.
    recreates: float = 0.7
    #: Share of recreated topics with an explicit replica assignment, which may include dead
    #: brokers. Without an explicit assignment, a topic can be created only while all brokers are
    #: up.
    chosen_replicas: float = 0.5
    #: Name of a scenario (`sim/faults`) that is played repeatedly, in addition to the drawn faults.
    scenario: str = ""
    #: Name of the phase after the faults in which a part of the cluster stays broken
    #: (`sim/phases`).
    phase: str = ""
    keeps_budget: bool = True
    #: Whether acknowledged records must survive; False if losses exceed the budget. Even then, the
    #: checkers check published state and epochs, and that batches are complete. No consumer may get
    #: records above the high watermark, records that no client sent, or rejected records. No broker
    #: may halt unexpectedly. Acknowledged changes of topics, partitions, configurations and leaders
    #: must hold. Liveness is always checked, too: within a minute all replicas are in sync,
    #: everything sent is acknowledged, and every member of a group works.
    keeps_promises: bool = True
    #: Whether all followers stay healthy during the whole run, so that none may leave an ISR (F5).
    isr_stands: bool = False
    #: Whether no fault delays the controller's commands for seconds, so that every leader must know
    #: its published ISR (A9).
    leaders_hear: bool = False
    #: Whether a follower that has kept up with a leader must stay in the ISR while both are alive,
    #: even if other brokers fail (F7).
    healthy_stay: bool = False
    #: Whether the rates of the replication throttle change, and a checker checks throttling (R15).
    throttles: bool = False
    #: Whether consumers request many bytes and wait long for them, and a checker checks waiting
    #: fetches (V61).
    patient_fetches: bool = False
    #: Whether a checker checks responses that wait for the next leader (V83).
    watches_leader_waits: bool = False
    #: Session timeout of the brokers in ms, after which the session of a dead process ends. With 0,
    #: a seed draws the timeout, and how soon the session of a dead process ends.
    session_timeout_ms: int = 0
    #: Configuration of the brokers, in addition to the simulator's own settings.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Values of further configuration keys; for each key, a seed draws one value for all brokers.
    drawn_properties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Whether the topics are compacted.
    compacted: bool = False
    #: Whether an administrator alters a topic and adds partitions all the time.
    churns: bool = False
    #: Share of the kinds of churn (changes by clients, `workload/churn_kinds`) that a seed draws.
    churn_share: float = 0.0
    #: Kinds of churn that every run of this profile has.
    churn: tuple[str, ...] = ()
    #: Whether consumer groups take part. Their checks assume that a broker notices the end of its
    #: session in time, so there are no groups in profiles that end the sessions of brokers without
    #: a link to the store.
    has_groups: bool = True
    #: Whether one idempotent producer writes to several partitions, as librdkafka does.
    shared_producer: bool = False
    #: Share of the leader changes at which the producer of `shared_producer` sends a new batch
    #: before it resends rejected batches.
    overtaking_share: float = 0.0
    #: Number of brokers; each partition has three replicas.
    brokers: int = 3
    #: Possible numbers of log directories; a seed draws one of them for all brokers.
    log_dirs: tuple[int, ...] = (1,)
    #: Keys of APIs that no broker of the run serves, as if the controller were Kafka's.
    withheld_apis: tuple[int, ...] = ()
    #: Size of each disk. It is small in profiles with balancing, which compares the used shares of
    #: disks (D15).
    disk_bytes: int = DEFAULT_CAPACITY_BYTES
    #: Possible values of `inter.broker.protocol.version`; each broker draws one of them. If empty,
    #: all brokers have the newest version (A12).
    protocol_levels: tuple[str, ...] = ()
    #: Smallest and largest delay in ms of a message between a node and the store.
    store_latency_ms: tuple[float, float] = (0.1, 1.5)
    #: Whether all kinds of faults take part, with equal probability. `weights` are then ignored,
    #: and each kind of fault has its own random stream.
    has_all_kinds: bool = False
    #: Whether all faults draw from one random stream, so that leaving out a fault changes later
    #: faults.
    shares_stream: bool = False

    def __post_init__(self, faults: str, config: str) -> None:
        if faults:
            object.__setattr__(self, "weights", weights(faults))
        if config:
            object.__setattr__(self, "properties", properties_of(config))


#: Makes a profile whose only faults are a repeated scenario and rare slow links.
played: Final = partial(Profile, faults="slow_link 1", pace=Pace(interval_ms=(2_000, 5_000)))
