"""The state of a cluster from which moves are planned: brokers, replicas, sizes, current moves.

A queued move counts as a move under way. Moves are read before replicas. If another move of a
partition begins between these two reads, the controller refuses the planned move, because the plan
expects replicas that the partition no longer has (R18). Planning fails if a broker does not report
its directories, because a plan needs the sizes of the replicas that it copies.
"""

from __future__ import annotations

from tidelog.client.cluster import PartitionMetadata
from tidelog.client.planning.cluster_state import ClusterState, PlacedPartition, without_racks
from tidelog.client.upkeep import sizes_of
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient


def read_state(client: BlockingClient, with_racks: bool = True) -> ClusterState:
    """Return live brokers and all partitions; unless `with_racks`, brokers have no rack."""
    moves = client.reassignments()
    moving = {tp: queued.target for tp, queued in moves.queued.items()}
    moving |= {tp: move.target for tp, move in moves.under_way.items()}
    metadata = client.metadata()
    sizes: dict[TopicPartition, dict[int, int]] = {}
    free_bytes: dict[int, int] = {}
    for broker in metadata.brokers:
        directories = client.describe_log_dirs(broker)
        if directories and all(each.usable_bytes >= 0 for each in directories):
            free_bytes[broker] = sum(each.usable_bytes for each in directories)
        for tp, size_bytes in sizes_of(directories).items():
            sizes.setdefault(tp, {})[broker] = size_bytes
    partitions = tuple(
        _placed(tp, partition, moving.get(tp), sizes.get(tp, {}))
        for tp, partition in metadata.all_partitions()
    )
    racks = {broker: node.rack for broker, node in metadata.brokers.items()}
    state = ClusterState(racks, partitions, free_bytes)
    return state if with_racks else without_racks(state)


def _placed(
    tp: TopicPartition,
    partition: PartitionMetadata,
    target: tuple[int, ...] | None,
    sizes: dict[int, int],
) -> PlacedPartition:
    return PlacedPartition(
        tp,
        partition.replicas if target is None else target,
        partition.leader,
        partition.isr,
        sizes.get(partition.leader, max(sizes.values(), default=0)),
        target is not None,
        tuple(each for each in partition.replicas if target is not None and each not in target),
    )
