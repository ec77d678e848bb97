"""A plan that places a topic on given brokers (R17); replicas already on these brokers stay.

Large partitions are placed first. Racks and the load of the named brokers decide the broker of a
replica.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.client.planning.cluster_state import ClusterState, PlanError
from tidelog.client.planning.moves import Chosen, MovePlan, plan_of
from tidelog.client.planning.placement import PlannedPlacement, leader_first
from tidelog.core.types import TopicPartition
from tidelog.core.wording import brokers_text, counted


def on_brokers(state: ClusterState, topic: str, brokers: Sequence[int]) -> MovePlan:
    """Return the moves that leave replicas of a topic on these brokers only.

    The number of replicas stays the same, and so does a preferred leader on a named broker. Raises
    PlanError for an unknown topic, no broker, a duplicate or dead broker, and for fewer brokers
    than a partition has replicas.
    """
    partitions = state.of_topic(topic)
    if not brokers:
        raise PlanError(f"topic {topic!r} is to move to no broker: name at least one")
    for broker in brokers:
        if brokers.count(broker) > 1:
            raise PlanError(f"broker {broker} is named twice: name each broker once")
        if broker not in state.racks:
            live = ", ".join(map(str, state.live))
            raise PlanError(f"there is no live broker {broker}; live are {live}")
    most = max(len(each.replicas) for each in partitions)
    if most > len(brokers):
        named = counted(len(brokers), "broker", "is", "are")
        raise PlanError(
            f"topic {topic!r} has {most} replicas of a partition, and {named} named: name at least"
            f" {most}, or lower the number first (tidelog topics alter {topic} --replication-factor"
            f" {len(brokers)})"
        )
    placement = PlannedPlacement(state)
    chosen: dict[TopicPartition, Chosen] = {}
    for partition in sorted(partitions, key=lambda each: (-each.size_bytes, each.tp)):
        kept = [broker for broker in partition.replicas if broker in brokers]
        missing = len(partition.replicas) - len(kept)
        if not missing:
            continue
        replicas = placement.add_best(partition.tp, kept, brokers, missing)
        if partition.replicas[0] not in brokers:
            replicas = leader_first(replicas, placement.best_leader(partition, replicas))
        placement.assign(partition.tp, replicas)
        elsewhere = [broker for broker in partition.replicas if broker not in brokers]
        reason = f"{brokers_text(elsewhere, 'is', 'are')} not among those named"
        chosen[partition.tp] = Chosen(replicas, reason)
    return plan_of(state, chosen)
