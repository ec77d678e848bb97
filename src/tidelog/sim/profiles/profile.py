"""What a profile is: a named bias of what happens to a run.

It weighs kinds of faults, sets how often they come, and says what the clients, the brokers'
configuration and the store's delays are like meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.sim.broker_settings import STORE_LATENCY_MS
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
    #: Share of the kinds of churn (`workload/churn_kinds`) that a seed draws.
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
