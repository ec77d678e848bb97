"""A graph of leadership transfers between brokers; no transfer copies a replica.

A chain of transfers passes one leadership from its first to its last broker; each broker in between
keeps its number of leaderships.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tidelog.core.types import TopicPartition


class LeaderGraph:
    """Partitions by preferred leader and by each other replica, which could become the leader."""

    def __init__(self) -> None:
        self._edges: dict[int, dict[int, dict[TopicPartition, None]]] = {}

    def add(self, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Add a partition; its first replica leads."""
        for other in replicas[1:]:
            self._edges.setdefault(replicas[0], {}).setdefault(other, {})[tp] = None

    def remove(self, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Remove a partition that was added with these replicas."""
        for other in replicas[1:]:
            del self._edges[replicas[0]][other][tp]

    def chain_from(
        self, source: int, leaders: Mapping[int, int]
    ) -> list[tuple[TopicPartition, int]]:
        """Return changes (partition, its new leader) that take one leadership from `source`.

        The shortest chain to the broker with the fewest leaderships is chosen. The changes are in
        order of execution: the last broker of the chain gains a leadership first. The list is empty
        unless a reachable broker has at least two leaderships fewer than `source`.
        """
        came: dict[int, tuple[TopicPartition, int]] = {}
        queue = deque([source])
        while queue:
            broker = queue.popleft()
            for other, partitions in sorted(self._edges.get(broker, {}).items()):
                if partitions and other != source and other not in came:
                    came[other] = (min(partitions), broker)
                    queue.append(other)
        # Among brokers with equally few leaderships, `min` takes the broker that the search reached
        # first, by the shortest chain.
        last = min(came, key=lambda each: leaders.get(each, 0), default=source)
        if leaders.get(last, 0) > leaders.get(source, 0) - 2:
            return []
        chain = []
        while last != source:
            tp, before = came[last]
            chain.append((tp, last))
            last = before
        return chain
