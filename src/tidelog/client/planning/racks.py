"""Racks: how evenly the replicas of one partition spread over them.

A broker without a rack is a rack of its own. A cluster where only some brokers have a rack has no
plan, as in Kafka: `check_racks` refuses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def rack_cap(replicas: int, racks: Mapping[int, str], targets: Iterable[int]) -> int:
    """Return how many replicas of a partition one rack must take at most.

    The smallest number for which the racks of the targets have room for all.
    """
    sizes = Counter(racks[broker] for broker in targets)
    for cap in range(1, replicas + 1):
        if sum(min(cap, size) for size in sizes.values()) >= replicas:
            return cap
    return replicas
