"""The placement of a plan: first the brokers of all replicas, then the leader of each partition.

The solver first chooses the brokers of replicas so that the fewest bytes are copied. Disk and
incoming network stay within limits, the replicas of a partition in one rack are bounded, and
drained brokers become empty. The solver then chooses each partition's leader among its replicas,
with the fewest changes of leader; number of leaders and outgoing network stay within limits. A
change of leader copies nothing, so leaders can be chosen after replicas.

All brokers get even shares of the load, unless the bound of replicas per rack leaves less for the
brokers of a rack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.client.planning.cluster_state import rack_cap
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.plan.assignment import AssignmentProblem, solve
from tidelog.spark.pipelines.plan.cluster_model import (
    ClusterModel,
    Goals,
    PartitionLoad,
    ReplicaPlacement,
    replicas_wanted,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Cost of a broker's load beyond its limit, relative to the cost of moving an equal share of a
#: disk.
_BEYOND: Final = 100.0
#: Cost of moving an empty replica, as a fraction of the cost of moving a replica of mean size.
_MOVE: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Limits:
    """The share of the load that each broker should take, by resource."""

    disk: Mapping[int, float]
    incoming: Mapping[int, float]
    leaders: Mapping[int, float]
    outgoing: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Planned:
    """A placement, with the brokers' shares, the bytes to copy and the cost of the replicas."""

    placement: ReplicaPlacement
    limits: Limits
    moved_bytes: int
    #: Cost of the chosen replicas, with penalties for loads beyond the limits; `bound` is a lower
    #: bound of the cost of any choice.
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """The distance of the cost from its lower bound, as a fraction of the bound."""
        if self.value <= self.bound or self.value == 0:
            return 0.0
        return (self.value - self.bound) / max(self.bound, 1e-9)


def place(cluster: ClusterModel, goals: Goals, time_limit_s: float) -> Planned:
    """Return the placement that meets the goals with the fewest bytes. Raises SolverError."""
    import numpy as np

    targets = cluster.targets(goals)
    columns = {broker: place for place, broker in enumerate(targets)}
    loads = cluster.partitions
    counts = np.array([replicas_wanted(each, goals) for each in loads], dtype=np.int64)
    start = _matrix([each.replicas for each in loads], columns)
    sizes = np.array([each.size_bytes for each in loads], dtype=float)
    rates = np.array([each.in_rate for each in loads], dtype=float)
    racks = cluster.racks(goals)
    groups = caps = None
    if racks is not None:
        names = sorted({racks[broker] for broker in targets})
        groups = np.array([names.index(racks[broker]) for broker in targets], dtype=np.int64)
        caps_by_count = {n: rack_cap(n, racks, targets) for n in sorted(set(counts.tolist()))}
        caps = np.array([caps_by_count[n] for n in counts.tolist()], dtype=np.int64)
    weights = np.stack([sizes, rates, sizes])
    room = _room(weights, counts, groups, caps, len(targets))
    total = max(float((sizes * counts).sum()), 1.0)
    total_rate = float((rates * counts).sum())
    shares = np.stack(
        [
            fair_shares(_disk_parts(cluster, targets), groups, room[0], total),
            fair_shares([1.0] * len(targets), groups, room[1], total_rate),
        ]
    )
    space = _space(cluster, targets, start, sizes, 10 * total)
    # A broker without space for its share of the disk cannot take its share of the network either.
    shares *= np.minimum(1.0, space / np.maximum(shares[0], 1.0))
    high = np.stack([*(shares * (1 + goals.tolerance)), space])
    low = np.stack([*(shares * (1 - goals.tolerance)), 0 * space])
    problem = AssignmentProblem(
        counts=counts,
        allowed=np.ones(start.shape, dtype=bool),
        cost=np.where(start, 0.0, (sizes + _MOVE * sizes.mean() + 1e-6)[:, None]),
        weights=weights,
        low=low,
        high=high,
        penalty=_BEYOND * np.array([1.0, total / max(total_rate, 1e-9), _BEYOND]),
        groups=groups,
        group_caps=caps,
    )
    choice = solve(problem, start, time_limit_s)
    chosen = [
        tuple(targets[column] for column in np.flatnonzero(row).tolist()) for row in choice.chosen
    ]
    moved = sum(
        load.size_bytes * len(set(new) - set(load.replicas))
        for load, new in zip(loads, chosen, strict=True)
    )
    led, leaders, outgoing = _lead(loads, chosen, targets, goals, max(5.0, time_limit_s / 4))
    limits = Limits(
        _by_broker(targets, shares[0]), _by_broker(targets, shares[1]), leaders, outgoing
    )
    return Planned(led, limits, moved, choice.value, choice.bound)


def fair_shares(
    parts: Sequence[float], groups: NDArray[np.int64] | None, room: Floats, total: float
) -> Floats:
    """Divide a total among brokers in proportion to `parts`; a rack gets at most its `room`."""
    import numpy as np

    wanted = np.array(parts, dtype=float)
    groups = np.zeros(len(wanted), dtype=np.int64) if groups is None else groups
    shares = np.zeros(len(wanted))
    is_open = np.ones(len(wanted), dtype=bool)
    left = total
    while is_open.any():
        trial = np.where(is_open, left * wanted / wanted[is_open].sum(), 0.0)
        full = [
            group
            for group in sorted(set(groups[is_open].tolist()))
            if trial[groups == group].sum() > room[group] * (1 + 1e-9)
        ]
        if not full:
            shares += trial
            return shares
        for group in full:
            own = groups == group
            shares[own] = room[group] * wanted[own] / wanted[own].sum()
            left -= room[group]
            is_open &= ~own
    return shares


def _room(
    weights: Floats,
    counts: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    caps: NDArray[np.int64] | None,
    brokers: int,
) -> Floats:
    """Return the load that each rack can take, by resource and rack."""
    import numpy as np

    if groups is None or caps is None:
        everything: Floats = (weights * counts).sum(axis=1)
        return everything[:, None]
    sizes = np.bincount(groups)
    return np.stack([(weights * np.minimum(caps, size)).sum(axis=1) for size in sizes], axis=1)


def _disk_parts(cluster: ClusterModel, targets: Sequence[int]) -> list[float]:
    """Return the size of each broker's volumes; 1 for each broker if any size is unknown."""
    totals = {each.broker_id: each.total_bytes for each in cluster.brokers}
    if any(not totals.get(broker) for broker in targets):
        return [1.0] * len(targets)
    return [float(totals[broker] or 1) for broker in targets]


def _space(
    cluster: ClusterModel,
    targets: Sequence[int],
    start: NDArray[np.bool_],
    sizes: Floats,
    enough: float,
) -> Floats:
    """Return the bytes that fit on each broker, including its current replicas.

    A broker that reports no volumes counts as having `enough` bytes.
    """
    import numpy as np

    usable = {each.broker_id: each.usable_bytes for each in cluster.brokers}
    free = [usable.get(broker) for broker in targets]
    present: Floats = sizes @ start
    present += np.array([enough if each is None else float(each) for each in free])
    return np.minimum(present, enough)


def _lead(
    loads: Sequence[PartitionLoad],
    chosen: Sequence[tuple[int, ...]],
    targets: Sequence[int],
    goals: Goals,
    time_limit_s: float,
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, float], dict[int, float]]:
    """Return replicas, the leader first, and each broker's fair share of leaders and sent bytes."""
    import numpy as np

    columns = {broker: place for place, broker in enumerate(targets)}
    allowed = _matrix(chosen, columns)
    start = _matrix([each.replicas[:1] for each in loads], columns)
    out = np.array([each.out_rate(len(new)) for each, new in zip(loads, chosen, strict=True)])
    weights = np.stack([np.ones(len(loads)), out])
    shares = np.repeat(weights.sum(axis=1)[:, None] / len(targets), len(targets), axis=1)
    high = shares * (1 + goals.tolerance)
    low = shares * (1 - goals.tolerance)
    # Numbers of leaders are whole, so a share rounded up or down is within the limits.
    high[0] = np.maximum(high[0], np.ceil(shares[0]))
    low[0] = np.minimum(low[0], np.floor(shares[0]))
    penalty = np.array([1.0, len(loads) / max(float(out.sum()), 1e-9)])
    problem = AssignmentProblem(
        counts=np.ones(len(loads), dtype=np.int64),
        allowed=allowed,
        cost=np.where(start, 0.0, 0.01),
        weights=weights,
        low=low,
        high=high,
        penalty=penalty,
    )
    choice = solve(problem, start, time_limit_s)
    leaders = [targets[int(np.flatnonzero(row)[0])] for row in choice.chosen]
    led = {
        load.tp: ordered(load.replicas, new, leader)
        for load, new, leader in zip(loads, chosen, leaders, strict=True)
    }
    return led, _by_broker(targets, shares[0]), _by_broker(targets, shares[1])


def ordered(before: Sequence[int], chosen: Sequence[int], leader: int) -> tuple[int, ...]:
    """Return replicas in order: the leader, remaining replicas in their order, new replicas."""
    stay = [broker for broker in before if broker in chosen and broker != leader]
    new = [broker for broker in chosen if broker not in before and broker != leader]
    return (leader, *stay, *new)


def _matrix(replicas: Sequence[Sequence[int]], columns: Mapping[int, int]) -> NDArray[np.bool_]:
    import numpy as np

    matrix = np.zeros((len(replicas), len(columns)), dtype=bool)
    for row, brokers in enumerate(replicas):
        for broker in brokers:
            if broker in columns:
                matrix[row, columns[broker]] = True
    return matrix


def _by_broker(targets: Sequence[int], values: Floats) -> dict[int, float]:
    return {broker: float(value) for broker, value in zip(targets, values, strict=True)}
