"""Placement of the replicas of new partitions: over racks first, then evenly (V21).

The result is the same for the same seed. Consecutive partitions get consecutive brokers of a ring
as leaders. Each further replica goes to a broker whose rack has the fewest replicas of this
partition so far. If several brokers qualify by rack, the broker with the fewest replicas of the
topic is chosen. In a tie, the first of the tied brokers after the leader in the ring is chosen.
After each round of leaders through the ring, the search for followers starts one place further, so
that the same brokers do not always share partitions. A broker without a rack counts as a rack of
its own. Partitions added to a topic continue after its last partition, and its existing replicas
count as load (V70).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import BrokerInfo


def place(
    brokers: Sequence[BrokerInfo],
    partitions: int,
    replication_factor: int,
    seed: int,
    existing: Mapping[int, Sequence[int]] | None = None,
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of the new partitions by number, preferred leader first.

    `partitions` is the number of new partitions, which are numbered after the `existing`
    partitions. Raises KafkaError: INVALID_PARTITIONS, or INVALID_REPLICATION_FACTOR with the factor
    and the number of brokers.
    """
    if partitions <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"number of partitions must be larger than 0, not {partitions}",
        )
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor must be larger than 0, not {replication_factor}",
        )
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the number of live"
            f" brokers, {len(brokers)}",
        )
    ring = _alternate_racks(brokers)
    size = len(ring)
    before = existing or {}
    start = _next_place(ring, before, seed)
    load = {broker.broker_id: 0 for broker in ring}
    for replicas in before.values():
        for broker_id in replicas:
            load[broker_id] = load.get(broker_id, 0) + 1
    assignments: dict[int, tuple[int, ...]] = {}
    for partition in range(len(before), len(before) + partitions):
        first = (start + partition - len(before)) % size
        shift = seed // size + partition // size
        others = size - 1
        order = [ring[(first + 1 + (shift + i) % others) % size] for i in range(others)]
        assignments[partition] = _replicas(ring[first], order, replication_factor, load)
    return assignments


def _next_place(ring: Sequence[BrokerInfo], before: Mapping[int, Sequence[int]], seed: int) -> int:
    """Return the index in the ring of the broker that leads the next partition."""
    places = [broker.broker_id for broker in ring]
    if before and before[len(before) - 1][0] in places:
        return places.index(before[len(before) - 1][0]) + 1
    return seed


def _replicas(
    leader: BrokerInfo, order: Sequence[BrokerInfo], replication_factor: int, load: dict[int, int]
) -> tuple[int, ...]:
    """Return a partition's leader and its followers from `order`; count its replicas in `load`."""
    chosen = [leader]
    in_rack = {_rack(leader): 1}
    free = sorted(order, key=lambda broker: load[broker.broker_id])
    replicas_per_rack = 0
    while len(chosen) < replication_factor:
        passed_over = []
        for broker in free:
            held = in_rack.get(_rack(broker), 0)
            if held == replicas_per_rack and len(chosen) < replication_factor:
                chosen.append(broker)
                in_rack[_rack(broker)] = held + 1
            else:
                passed_over.append(broker)
        free = passed_over
        replicas_per_rack += 1
    for broker in chosen:
        load[broker.broker_id] += 1
    return tuple(broker.broker_id for broker in chosen)


def _rack(broker: BrokerInfo) -> tuple[int, str]:
    return (0, broker.rack) if broker.rack is not None else (1, str(broker.broker_id))


def _alternate_racks(brokers: Sequence[BrokerInfo]) -> list[BrokerInfo]:
    """Return the brokers in an order in which neighbours have different racks, if possible."""
    racks: dict[tuple[int, str], list[BrokerInfo]] = {}
    for broker in sorted(brokers, key=lambda info: (_rack(info), info.broker_id)):
        racks.setdefault(_rack(broker), []).append(broker)
    ring: list[BrokerInfo] = []
    longest = max(len(members) for members in racks.values())
    for place_in_rack in range(longest):
        ring.extend(
            members[place_in_rack] for members in racks.values() if place_in_rack < len(members)
        )
    return ring
