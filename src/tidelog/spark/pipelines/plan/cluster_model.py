"""The input of a plan: brokers, partitions with their load, and goals.

Before a solver searches, `check` finds goals that no plan can meet, and raises GoalError with a
valid goal. The module uses neither a client nor Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition


class GoalError(TidelogError):
    """The error for goals or a cluster without a possible plan; it states a valid goal."""


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A live broker; the size of its volumes is None if it does not report this size."""

    broker_id: int
    rack: str | None = None
    total_bytes: int | None = None
    usable_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """A partition, its replicas, and the load that it causes.

    `out_rate` returns the rate of bytes that the partition's leader sends to followers and groups.
    """

    tp: TopicPartition
    replicas: tuple[int, ...]
    leader: int
    size_bytes: int
    in_rate: float
    readers: int = 0

    def out_rate(self, replication_factor: int) -> float:
        """Bytes per second that the leader sends to followers and groups."""
        return self.in_rate * (replication_factor - 1 + self.readers)


@dataclass(frozen=True, slots=True)
class Goals:
    """The goals of a plan; loads may be `tolerance` above or below a broker's share."""

    tolerance: float = 0.1
    drain: frozenset[int] = frozenset()
    #: Replication factors by topic; partitions of other topics keep their number of replicas.
    replication_factors: Mapping[str, int] = field(default_factory=dict)
    with_racks: bool = True


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """The cluster as the input of a plan: all live brokers, and the partitions to place."""

    brokers: tuple[LiveBroker, ...]
    partitions: tuple[PartitionLoad, ...]

    def targets(self, goals: Goals) -> list[int]:
        """Return the brokers that may hold replicas, ascending."""
        return sorted(b.broker_id for b in self.brokers if b.broker_id not in goals.drain)

    def racks(self, goals: Goals) -> dict[int, str] | None:
        """Return racks by broker; None if the plan ignores racks."""
        if not goals.with_racks:
            return None
        racks = {each.broker_id: each.rack for each in self.brokers if each.rack is not None}
        return racks or None


def replicas_wanted(load: PartitionLoad, goals: Goals) -> int:
    """Return the number of replicas that a partition has under the goals."""
    return goals.replication_factors.get(load.tp.topic, len(load.replicas))


def check(cluster: ClusterModel, goals: Goals) -> None:
    """Raise GoalError if no plan can meet the goals."""
    known = sorted(each.broker_id for each in cluster.brokers)
    _check_brokers(cluster, goals, known)
    if not cluster.partitions:
        raise GoalError("there is no partition to plan for: create topics, or name other ones")
    topics = {each.tp.topic for each in cluster.partitions}
    for topic, factor in goals.replication_factors.items():
        if topic not in topics:
            raise GoalError(
                f"replicas of topic {topic!r} are to change, but there is no such topic"
            )
        if factor < 1:
            raise GoalError(f"topic {topic!r} is to have {factor} replicas: at least 1 expected")
    targets = cluster.targets(goals)
    for load in cluster.partitions:
        wanted = replicas_wanted(load, goals)
        if wanted > len(targets):
            raise GoalError(_too_many(load, wanted, targets, goals))
    racks = cluster.racks(goals)
    if racks is not None:
        without = [str(each) for each in known if each not in racks]
        if without:
            raise GoalError(
                f"brokers {', '.join(without)} have no rack, but others have one: set broker.rack"
                " on all of them, or plan without racks (--no-racks)"
            )


def _check_brokers(cluster: ClusterModel, goals: Goals, known: Sequence[int]) -> None:
    assigned: Counter[int] = Counter()
    for load in cluster.partitions:
        assigned.update(load.replicas)
    unknown = sorted(goals.drain - set(known) - set(assigned))
    if unknown:
        raise GoalError(
            f"broker {unknown[0]} is to be drained, but the cluster has no such broker: it has"
            f" {', '.join(map(str, known))}"
        )
    for broker in sorted(set(assigned) - set(known) - goals.drain):
        raise GoalError(
            f"broker {broker} is not alive and holds {assigned[broker]} replicas: start it, or"
            f" drain it with --drain {broker}"
        )
    if not cluster.targets(goals):
        raise GoalError("every broker is to be drained: leave at least one")


def _too_many(load: PartitionLoad, wanted: int, targets: Sequence[int], goals: Goals) -> str:
    names = ", ".join(map(str, targets))
    drained = ", ".join(map(str, sorted(goals.drain)))
    without = f"without broker {drained} there" if goals.drain else "there"
    verb = "is" if len(targets) == 1 else "are"
    return (
        f"partition {load.tp} is to have {wanted} replicas, but {without} {verb} {len(targets)}"
        f" ({names}): add a broker, or plan fewer replicas with"
        f" --replication-factor {load.tp.topic}={len(targets)}"
    )


#: Replicas of each partition, the preferred leader first.
ReplicaPlacement = Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load of one broker."""

    replicas: int = 0
    disk_bytes: int = 0
    in_rate: float = 0.0
    leaders: int = 0
    out_rate: float = 0.0


def broker_loads(cluster: ClusterModel, placement: ReplicaPlacement) -> dict[int, BrokerLoad]:
    """Return the load of each broker under the leadership of preferred replicas."""
    found = {each.broker_id: BrokerLoad() for each in cluster.brokers}
    for load in cluster.partitions:
        replicas = placement[load.tp]
        for place, broker in enumerate(replicas):
            leads = place == 0
            own = found.get(broker, BrokerLoad())
            found[broker] = BrokerLoad(
                own.replicas + 1,
                own.disk_bytes + load.size_bytes,
                own.in_rate + load.in_rate,
                own.leaders + leads,
                own.out_rate + leads * load.out_rate(len(replicas)),
            )
    return dict(sorted(found.items()))


def present_placement(cluster: ClusterModel) -> ReplicaPlacement:
    """Return the current placement."""
    return {each.tp: each.replicas for each in cluster.partitions}
