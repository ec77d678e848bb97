"""The balance of a whole cluster (R17): racks, replicas, bytes and leaders, in this order.

Each step changes the placement only where it is unbalanced, and moves the cheapest replica that
helps, so few bytes move. The numbers of replicas of any two brokers differ by at most one, unless
racks forbid it. Exchanges of two replicas bring the bytes of a broker within a tolerance of the
mean, if possible. Leaderships are spread as evenly as the replicas allow, without any copy. The
plan for a balanced cluster has no moves.

Planning ends: each step reduces the imbalance of racks, replicas, bytes or leaders, and does not
worsen the balance that earlier steps reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.client.planning.cluster_state import ClusterState, check_replicas_alive, rack_cap
from tidelog.client.planning.leader_graph import LeaderGraph
from tidelog.client.planning.moves import Chosen, MovePlan, plan_of
from tidelog.client.planning.placement import PlannedPlacement, leader_first
from tidelog.client.planning.size_index import SizeIndex
from tidelog.core.types import TopicPartition
from tidelog.core.wording import counted

TOLERANCE = 0.1
#: Smallest imbalance of brokers, in bytes, that is worth the copy of a replica.
_LEAST_BYTES = 1024 * 1024
#: An exchange is worth its two copies only if it removes at least this part of the two brokers'
#: difference in bytes.
_LEAST_PART = 0.02
#: Maximum number of replicas of a broker that a plan tries for one exchange. The plan tries the
#: replicas whose sizes are nearest to the size that would balance both brokers.
_TRIED = 12


def rebalanced(state: ClusterState, tolerance: float = TOLERANCE) -> MovePlan:
    """Return the moves that balance the cluster; a move's reason is the imbalance that it reduces.

    `tolerance` limits the distance of a broker's bytes from the mean, as a fraction of the mean.
    Moving partitions count in the balance, but the plan does not move them again. Raises PlanError
    if a replica is on a dead broker.
    """
    for partition in state.partitions:
        check_replicas_alive(state, partition)
    balancer = _Balancer(state, tolerance)
    balancer.run()
    return plan_of(
        state,
        {
            tp: Chosen(balancer.placement.replicas[tp], "; ".join(reasons))
            for tp, reasons in balancer.reasons.items()
        },
    )


class _Exchange(NamedTuple):
    """A possible exchange of two brokers: a replica that moves, and one that moves back.

    None means that no replica moves back.
    """

    goes: TopicPartition
    comes: TopicPartition | None
    #: Bytes by which the exchange reduces the difference between the two brokers' bytes.
    closes: int
    cost: int


class _Balancer:
    def __init__(self, state: ClusterState, tolerance: float) -> None:
        self.placement = PlannedPlacement(state)
        self.reasons: dict[TopicPartition, list[str]] = {}
        self._live = state.live
        self._tolerance = tolerance
        self._free = {each.tp: None for each in state.partitions if not each.is_moving}
        self._index = SizeIndex()
        racks = self.placement.racks
        counts = sorted({len(each.replicas) for each in state.partitions})
        self._caps = {count: rack_cap(count, racks, self._live) for count in counts}
        for partition in state.partitions:
            if not partition.is_moving:
                for broker in partition.replicas:
                    self._index.add(broker, partition.size_bytes, partition.tp)

    def run(self) -> None:
        while self._spread_racks() or self._even_replicas() or self._even_bytes():
            continue
        self._even_leaders()

    # -- steps ----------------------------------------------------------------------------------

    def _spread_racks(self) -> bool:
        """Spread each partition's replicas over the racks; return whether any replica moved."""
        placement, moved = self.placement, False
        for tp in self._free:
            while True:
                replicas = placement.replicas[tp]
                cap = self._caps[len(replicas)]
                crowded = [each for each in replicas if placement.in_rack(replicas, each) > cap]
                if not crowded:
                    break
                source = max(
                    crowded, key=lambda each: (each != replicas[0], placement.counts[each], each)
                )
                able = [each for each in self._live if self._may_take(tp, source, each)]
                if not able:
                    break
                kept = tuple(each for each in replicas if each != source)
                target = placement.add_best(tp, kept, able, 1)[-1]
                count = placement.in_rack(replicas, source)
                rack = placement.racks[source]
                self._move(
                    tp, source, target, f"rack {rack} has {count} of {len(replicas)} replicas"
                )
                moved = True
        return moved

    def _even_replicas(self) -> bool:
        """Move replicas to brokers with at least two fewer replicas; return whether any moved."""
        counts, moved = self.placement.counts, False
        while True:
            step = self._next_replica()
            if step is None:
                return moved
            tp, source, target = step
            has = counted(counts[source], "replica")
            reason = f"broker {source} has {has}, broker {target} {counts[target]}"
            self._move(tp, source, target, reason)
            moved = True

    def _next_replica(self) -> tuple[TopicPartition, int, int] | None:
        counts, sums = self.placement.counts, self.placement.bytes
        by_count = sorted(self._live, key=lambda each: (counts[each], each))
        for source in reversed(by_count):
            for target in by_count:
                gap = counts[source] - counts[target]
                if gap < 2:
                    break
                excess = sums[source] - sums[target]
                wanted = excess // gap if excess > self._slack() else 0
                for tp in self._index.nearest(source, wanted):
                    if self._may_take(tp, source, target):
                        return tp, source, target
        return None

    def _even_bytes(self) -> bool:
        """Exchange replicas of brokers with uneven bytes; return whether any replica moved."""
        sums, moved = self.placement.bytes, False
        while True:
            for source, target in self._uneven_pairs():
                found = self._best_exchange(source, target)
                if found is None:
                    continue
                reason = (
                    f"broker {source} has {sums[source]:,} bytes, broker {target} {sums[target]:,}"
                )
                self._move(found.goes, source, target, reason)
                if found.comes is not None:
                    self._move(found.comes, target, source, f"makes room for {found.goes}")
                moved = True
                break
            else:
                return moved

    def _slack(self) -> float:
        """Return the tolerance in bytes: how far a broker's bytes may be from the brokers' mean."""
        mean = sum(self.placement.bytes[each] for each in self._live) / max(1, len(self._live))
        return max(_LEAST_BYTES, self._tolerance * mean)

    def _uneven_pairs(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of brokers, most uneven first, if either broker is beyond the tolerance."""
        sums = self.placement.bytes
        mean = sum(sums[each] for each in self._live) / max(1, len(self._live))
        slack = self._slack()
        by_bytes = sorted(self._live, key=lambda each: (sums[each], each))
        for source in reversed(by_bytes):
            for target in by_bytes:
                is_uneven = sums[source] > mean + slack or sums[target] < mean - slack
                if is_uneven and sums[source] > sums[target]:
                    yield source, target

    def _best_exchange(self, source: int, target: int) -> _Exchange | None:
        """Return the cheapest exchange that brings both brokers within the tolerance.

        If there is none, return the exchange that reduces the brokers' difference most.
        """
        sums = self.placement.bytes
        gap = sums[source] - sums[target]
        mean = sum(sums[each] for each in self._live) / len(self._live)
        need = max(sums[source] - mean, mean - sums[target]) - self._slack()
        least = max(1.0, _LEAST_PART * gap)
        found = [each for each in self._exchanges(source, target, gap) if each.closes >= least]
        enough = [each for each in found if each.closes >= need]
        if enough:
            return min(enough, key=lambda each: (each.cost, each.goes))
        return max(found, key=lambda each: (each.closes, -each.cost), default=None)

    def _exchanges(self, source: int, target: int, gap: int) -> Iterator[_Exchange]:
        size_of = self.placement.size_of
        alone = self.placement.counts[source] > self.placement.counts[target]
        for wanted in (gap // 2, gap // 4):
            for goes in self._index.nearest(source, wanted, _TRIED):
                if not self._may_take(goes, source, target):
                    continue
                size = size_of(goes)
                if alone and 0 < size < gap:
                    yield _Exchange(goes, None, min(size, gap - size), size)
                for aim in (0, max(0, size - gap // 2)):
                    for comes in self._index.nearest(target, aim, _TRIED):
                        closes = min(size - size_of(comes), gap - size + size_of(comes))
                        if closes > 0 and self._may_take(comes, target, source):
                            yield _Exchange(goes, comes, closes, size + size_of(comes))

    def _even_leaders(self) -> None:
        """Pass leaderships along chains of partitions to brokers with fewer leaderships."""
        leaders, graph = self.placement.leaders, LeaderGraph()
        for tp in self._free:
            graph.add(tp, self.placement.replicas[tp])
        while True:
            for source in sorted(self._live, key=lambda each: (-leaders[each], each)):
                chain = graph.chain_from(source, leaders)
                if chain:
                    break
            else:
                return
            last = chain[0][1]
            leads = counted(leaders[source], "partition")
            reason = f"broker {source} leads {leads}, broker {last} {leaders[last]}"
            for tp, leader in chain:
                replicas = self.placement.replicas[tp]
                graph.remove(tp, replicas)
                self._assign(tp, leader_first(replicas, leader), reason)
                graph.add(tp, self.placement.replicas[tp])

    # -- changes --------------------------------------------------------------------------------

    def _may_take(self, tp: TopicPartition, source: int, target: int) -> bool:
        """Return whether `target` has room for the replica, and its rack may hold one more."""
        placement = self.placement
        replicas = placement.replicas[tp]
        if target in replicas or not placement.has_room(tp, target):
            return False
        kept = [each for each in replicas if each != source]
        return placement.in_rack(kept, target) < self._caps[len(replicas)]

    def _move(self, tp: TopicPartition, source: int, target: int, reason: str) -> None:
        size = self.placement.size_of(tp)
        self._index.remove(source, size, tp)
        self._index.add(target, size, tp)
        replicas = self.placement.replicas[tp]
        self._assign(tp, tuple(target if each == source else each for each in replicas), reason)

    def _assign(self, tp: TopicPartition, replicas: tuple[int, ...], reason: str) -> None:
        self.placement.assign(tp, replicas)
        self.reasons.setdefault(tp, []).append(reason)
