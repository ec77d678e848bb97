"""Plans that change the replication factor of a topic (R17).

If the factor grows, existing replicas stay in their order, and new replicas follow. If the factor
shrinks, the leader stays, then in-sync replicas, then replicas on live brokers. Among equal
candidates, the plan removes the replica in the rack with the largest number of the partition's
replicas. Among equal racks, the plan removes the replica on the broker with the largest number of
replicas.
"""

from __future__ import annotations

from tidelog.client.planning.cluster_state import (
    ClusterState,
    PlacedPartition,
    PlanError,
    check_replicas_alive,
)
from tidelog.client.planning.moves import Chosen, MovePlan, plan_of
from tidelog.client.planning.placement import PlannedPlacement
from tidelog.core.types import TopicPartition
from tidelog.core.wording import counted


def with_replication_factor(state: ClusterState, topic: str, factor: int) -> MovePlan:
    """Return the moves that give every partition of a topic `factor` replicas.

    Raises PlanError for an unknown topic, for a factor below 1 or above the number of live brokers,
    and if a remaining replica is on a dead broker.
    """
    partitions = state.of_topic(topic)
    live = state.live
    if factor < 1:
        raise PlanError(f"topic {topic!r} is to have {factor} replicas: at least 1 expected")
    if factor > len(live):
        raise PlanError(
            f"topic {topic!r} is to have {factor} replicas, and"
            f" {counted(len(live), 'broker', 'is', 'are')} alive ({', '.join(map(str, live))}):"
            f" start more brokers, or ask for at most {len(live)}"
        )
    placement = PlannedPlacement(state)
    wanted = counted(factor, "replica", "is", "are")
    chosen: dict[TopicPartition, Chosen] = {}
    for partition in partitions:
        have = len(partition.replicas)
        if have == factor:
            continue
        if have < factor:
            check_replicas_alive(state, partition)
            missing = factor - have
            replicas = placement.add_best(partition.tp, partition.replicas, live, missing)
        else:
            replicas = _kept(partition, factor, placement)
            rest = PlacedPartition(partition.tp, replicas)
            check_replicas_alive(state, rest)
        placement.assign(partition.tp, replicas)
        chosen[partition.tp] = Chosen(replicas, f"{wanted} wanted instead of {have}")
    return plan_of(state, chosen)


def _kept(partition: PlacedPartition, factor: int, placement: PlannedPlacement) -> tuple[int, ...]:
    replicas = list(partition.replicas)
    while len(replicas) > factor:
        replicas.remove(
            max(replicas, key=lambda each: _expendable(partition, each, replicas, placement))
        )
    return tuple(replicas)


def _expendable(
    partition: PlacedPartition, broker: int, replicas: list[int], placement: PlannedPlacement
) -> tuple[bool, bool, bool, int, int, int]:
    """Return a sort key of the replica on `broker`; the plan first removes the highest key."""
    return (
        broker != partition.leader,
        broker not in placement.racks,
        broker not in partition.isr,
        placement.in_rack(replicas, broker),
        placement.counts[broker],
        replicas.index(broker),
    )
