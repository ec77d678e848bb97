"""The moves of a plan with their reasons, in batches of similar length, and as Kafka's JSON.

A batch of moves lasts as long as its busiest broker receives or sends at the given bandwidth. New
replicas are copied from the current leader. Batches of moves run one after the other. A broker may
exceed its share until a later batch moves replicas away from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from tidelog.client.planning.cluster_state import rack_cap
from tidelog.client.planning.moves import reassignment_document
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.plan.cluster_model import (
    BrokerLoad,
    ClusterModel,
    Goals,
    PartitionLoad,
    broker_loads,
    present_placement,
    replicas_wanted,
)
from tidelog.spark.pipelines.plan.placement import Planned

#: A batch of moves may take this many times the requested time; beyond that, the planner makes
#: another batch.
_STRETCH: Final = 1.1
_MOST_BATCHES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Copy:
    """One new replica, and the broker of the replica that it replaces, if any."""

    source: int | None
    target: int
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """One partition's change of replicas; without copies and removals, only the leader changes."""

    tp: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    #: The broker from which new replicas are copied.
    leader: int
    copies: tuple[Copy, ...]
    removed: tuple[int, ...]
    reason: str

    @property
    def size_bytes(self) -> int:
        """Bytes that are copied."""
        return sum(each.size_bytes for each in self.copies)


@dataclass(slots=True)
class Batch:
    """Moves that run at the same time."""

    moves: list[PartitionMove] = field(default_factory=list)
    received: Counter[int] = field(default_factory=Counter)
    sent: Counter[int] = field(default_factory=Counter)

    def add(self, move: PartitionMove) -> None:
        """Add a move to this batch."""
        self.moves.append(move)
        self.sent[move.leader] += move.size_bytes
        for each in move.copies:
            self.received[each.target] += each.size_bytes

    def busiest_with(self, move: PartitionMove) -> int:
        """Return the bytes of the busiest broker if the batch also had this move."""
        busy = [self.sent[move.leader] + move.size_bytes]
        busy += [self.received[each.target] + each.size_bytes for each in move.copies]
        return max(*busy, self.busiest)

    @property
    def busiest(self) -> int:
        """Bytes that the batch's busiest broker receives or sends."""
        return max([*self.received.values(), *self.sent.values()], default=0)

    def seconds(self, bandwidth: float) -> float:
        """Return the time in seconds of this batch of moves at a bandwidth in bytes per second."""
        return self.busiest / bandwidth


def moves_of(cluster: ClusterModel, goals: Goals, planned: Planned) -> list[PartitionMove]:
    """Return the partitions that change, the largest first."""
    reasons = _Reasons(cluster, goals, planned)
    moves = []
    for load in cluster.partitions:
        after = planned.placement[load.tp]
        if after != load.replicas:
            moves.append(_move(load, after, reasons))
    return sorted(moves, key=lambda each: (-each.size_bytes, each.tp))


def _move(load: PartitionLoad, after: tuple[int, ...], reasons: _Reasons) -> PartitionMove:
    added = [broker for broker in after if broker not in load.replicas]
    removed = [broker for broker in load.replicas if broker not in after]
    pairs = list(zip(removed, added, strict=False))
    sources: list[int | None] = [source for source, _ in pairs]
    sources += [None] * (len(added) - len(pairs))
    copies = tuple(
        Copy(source, target, load.size_bytes, reasons.of_copy(load, source, target))
        for source, target in zip(sources, added, strict=True)
    )
    parts = list(dict.fromkeys(each.reason for each in copies))
    if len(removed) > len(added):
        parts.append(f"{len(after)} replicas are wanted instead of {len(load.replicas)}")
    if not parts or (after[0] != load.replicas[0] and load.replicas[0] in after):
        parts.append(reasons.of_leader(load, after[0]))
    leader = load.leader if load.leader >= 0 else load.replicas[0]
    return PartitionMove(
        load.tp, load.replicas, after, leader, copies, tuple(removed), "; ".join(parts)
    )


#: A resource: its name, the part of it that each broker should carry, and a function that returns
#: how much of it a load uses.
_Resource = tuple[str, Mapping[int, float], Callable[[BrokerLoad], float]]


class _Reasons:
    """The reasons of a plan's moves: for each move, the first goal that the current placement
    misses.
    """

    def __init__(self, cluster: ClusterModel, goals: Goals, planned: Planned) -> None:
        self._goals = goals
        self._limits = planned.limits
        self._before = broker_loads(cluster, present_placement(cluster))
        self._racks = cluster.racks(goals)
        self._targets = cluster.targets(goals)

    def of_copy(self, load: PartitionLoad, source: int | None, target: int) -> str:
        """Return the reason for a new replica on `target` instead of `source`."""
        if source is None:
            wanted = replicas_wanted(load, self._goals)
            return f"{wanted} replicas are wanted instead of {len(load.replicas)}"
        if source in self._goals.drain:
            return f"broker {source} is drained"
        crowded = self._crowded_rack(load, source)
        if crowded is not None:
            return crowded
        resources = (
            ("disk", self._limits.disk, lambda each: each.disk_bytes),
            ("incoming network", self._limits.incoming, lambda each: each.in_rate),
        )
        found = self._imbalance(source, target, resources, " is at")
        return found or f"makes room on broker {source} for larger partitions"

    def of_leader(self, load: PartitionLoad, leader: int) -> str:
        """Return the reason for a change of the preferred leader."""
        resources = (
            ("leaders", self._limits.leaders, lambda each: each.leaders),
            ("outgoing network", self._limits.outgoing, lambda each: each.out_rate),
        )
        found = self._imbalance(load.replicas[0], leader, resources, ":")
        return found or f"broker {leader} leads, for the balance of leaders after the moves"

    def _imbalance(
        self, source: int, target: int, resources: Iterable[_Resource], verb: str
    ) -> str | None:
        """Return which resource `source` has too much of, or `target` too little, as a sentence."""
        for name, limits, amount in resources:
            gives = self._part(source, limits, amount)
            takes = self._part(target, limits, amount)
            if gives > 1 + self._goals.tolerance:
                return f"{name} of broker {source}{verb} {gives:.0%} of its share"
            if takes < 1 - self._goals.tolerance:
                return f"{name} of broker {target}{verb} {takes:.0%} of its share"
        return None

    def _crowded_rack(self, load: PartitionLoad, source: int) -> str | None:
        if self._racks is None or source not in self._racks:
            return None
        rack = self._racks[source]
        there = sum(self._racks.get(broker) == rack for broker in load.replicas)
        cap = rack_cap(replicas_wanted(load, self._goals), self._racks, self._targets)
        if there <= cap:
            return None
        return f"rack {rack} has {there} of {len(load.replicas)} replicas"

    def _part(
        self, broker: int, limits: Mapping[int, float], amount: Callable[[BrokerLoad], float]
    ) -> float:
        share = limits.get(broker, 0.0)
        load = self._before.get(broker, BrokerLoad())
        return float(amount(load)) / share if share > 0 else 1.0


def batches_of(moves: Sequence[PartitionMove], bandwidth: float, length_s: float) -> list[Batch]:
    """Return batches of moves that take about `length_s` each, the largest moves first.

    If a single move takes longer than `length_s`, each batch may take as long as this move. Moves
    without copies come last, in their own batch.
    """
    copying = sorted(
        (each for each in moves if each.size_bytes), key=lambda each: (-each.size_bytes, each.tp)
    )
    quick = [each for each in moves if not each.size_bytes]
    whole = Batch()
    for move in copying:
        whole.add(move)
    longest = max((each.size_bytes for each in copying), default=0) / bandwidth
    allowed_s = max(length_s, longest) * _STRETCH
    count = max(1, round(whole.seconds(bandwidth) / max(length_s, longest, 1e-9) + 0.499))
    batches: list[Batch] = []
    while copying:
        batches = _packed(copying, count)
        if max(each.seconds(bandwidth) for each in batches) <= allowed_s or count >= min(
            len(copying), _MOST_BATCHES
        ):
            break
        count += 1
    batches = [each for each in batches if each.moves]
    if quick:
        last = Batch()
        for move in quick:
            last.add(move)
        batches.append(last)
    return batches


def _packed(moves: Sequence[PartitionMove], count: int) -> list[Batch]:
    """Return moves in batches; each move joins the batch whose busiest broker stays least busy."""
    batches = [Batch() for _ in range(count)]
    for move in moves:
        best = min(batches, key=lambda each: (each.busiest_with(move), sum(each.sent.values())))
        best.add(move)
    return batches


def plan_files(batches: Sequence[Batch]) -> dict[str, dict[str, Any]]:
    """Return the documents of a plan by file name: each batch of moves, and the rollback."""
    digits = max(2, len(str(len(batches))))
    files = {
        f"batch-{number:0{digits}}.json": reassignment_document(
            {move.tp: move.after for move in batch.moves},
            {move.tp: move.before for move in batch.moves},
        )
        for number, batch in enumerate(batches, 1)
    }
    before = {move.tp: move.before for batch in batches for move in batch.moves}
    after = {move.tp: move.after for batch in batches for move in batch.moves}
    files["rollback.json"] = reassignment_document(before, after)
    return files
