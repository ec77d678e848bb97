"""The placement that a plan builds: replicas, leaders and bytes of each broker.

A new replica goes to a broker with room in the rack with the fewest replicas of its partition.
Among brokers of equally good racks, the broker with the fewest replicas gets the new replica; among
brokers with equally few replicas, the broker with the fewest bytes. The preferred leader is the
in-sync replica whose broker leads the fewest partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tidelog.client.planning.cluster_state import ClusterState, PlacedPartition
from tidelog.core.types import TopicPartition


class PlannedPlacement:
    """Replicas by partition, and each broker's load; at first the cluster's current placement."""

    def __init__(self, state: ClusterState) -> None:
        self.racks = state.rack_names()
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        #: Number of replicas by broker.
        self.counts: Counter[int] = Counter()
        #: Number of preferred leaderships by broker.
        self.leaders: Counter[int] = Counter()
        #: Bytes of the replicas by broker.
        self.bytes: Counter[int] = Counter()
        self._before = {each.tp: each.replicas for each in state.partitions}
        self._free_bytes = dict(state.free_bytes)
        self._sizes = {each.tp: each.size_bytes for each in state.partitions}
        for partition in state.partitions:
            self.assign(partition.tp, partition.replicas)

    def assign(self, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Give a partition these replicas, the preferred leader first."""
        size = self._sizes[tp]
        for sign, brokers in ((-1, self.replicas.get(tp, ())), (1, replicas)):
            for broker in brokers:
                self.counts[broker] += sign
                self.bytes[broker] += sign * size
                if broker in self._free_bytes and broker not in self._before[tp]:
                    self._free_bytes[broker] -= sign * size
            if brokers:
                self.leaders[brokers[0]] += sign
        self.replicas[tp] = replicas

    def size_of(self, tp: TopicPartition) -> int:
        """Return the bytes of one copy of a partition."""
        return self._sizes[tp]

    def has_room(self, tp: TopicPartition, broker: int) -> bool:
        """Return whether a broker has room for a copy; an existing replica needs no room."""
        free = self._free_bytes.get(broker)
        return free is None or broker in self._before[tp] or self._sizes[tp] <= free

    def in_rack(self, replicas: Iterable[int], broker: int) -> int:
        """Return how many of the replicas are in the rack of a broker."""
        rack = self.racks.get(broker)
        return sum(self.racks.get(each) == rack for each in replicas)

    def add_best(
        self, tp: TopicPartition, kept: Sequence[int], candidates: Iterable[int], count: int
    ) -> tuple[int, ...]:
        """Return `kept` and the best `count` further brokers; fewer if candidates run out."""
        found = list(kept)
        for _ in range(count):
            free = [broker for broker in candidates if broker not in found]
            if not free:
                break
            found.append(min(free, key=lambda broker: self._cost(tp, found, broker)))
        return tuple(found)

    def _cost(
        self, tp: TopicPartition, replicas: Sequence[int], broker: int
    ) -> tuple[int, bool, int, int, int]:
        return (
            self.in_rack(replicas, broker),
            not self.has_room(tp, broker),
            self.counts[broker],
            self.bytes[broker],
            broker,
        )

    def best_leader(self, partition: PlacedPartition, able: Sequence[int]) -> int:
        """Return the best leader in `able`: in sync if possible, with the fewest leaderships."""
        in_sync = [broker for broker in able if broker in partition.isr]
        own = self.replicas[partition.tp][0]

        def led(broker: int) -> int:
            return self.leaders[broker] - (broker == own)

        return min(in_sync or able, key=lambda broker: (led(broker), able.index(broker)))


def leader_first(replicas: Sequence[int], leader: int) -> tuple[int, ...]:
    """Return the replicas with the leader first and the other replicas in their order."""
    return (leader, *(broker for broker in replicas if broker != leader))
