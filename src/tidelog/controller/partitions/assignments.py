"""Limits of requested assignments: which replicas, and how many (V5, V21).

Refusals are KafkaErrors whose message names an acceptable assignment.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.incarnations import Brokers
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MAX_NODE_BYTES, MAX_PARTITIONS_PER_REQUEST

#: Maximum size of a node of the store, less the other content of a topic node.
_MAX_ASSIGNMENT_BYTES = MAX_NODE_BYTES - 1_000


def check_size(partitions: int, replicas: int, widest_id: int) -> None:
    """Raise KafkaError if the planned node of a topic does not fit into one node of the store.

    `replicas` is the number of replicas of all partitions together. `widest_id` is the largest
    broker id that the topic's node may name.
    """
    size_bytes = partitions * (len(str(partitions)) + 8) + replicas * (len(str(widest_id)) + 2)
    if size_bytes > _MAX_ASSIGNMENT_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions with {replicas} replicas take up to {size_bytes} bytes of"
            f" metadata, one topic has room for {_MAX_ASSIGNMENT_BYTES}",
        )


def check_partition_count(partitions: int, room: int) -> None:
    """Raise KafkaError unless a request may create `partitions` further partitions.

    `room` is the number of partitions that the request may still create.
    """
    if partitions > room:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions: this request may make {room} more, one request at most"
            f" {MAX_PARTITIONS_PER_REQUEST}",
        )


def check_replicas(partition: int, replicas: Sequence[int], expected: int) -> None:
    """Raise KafkaError unless a partition with `expected` replicas can have these replicas."""
    fault = None
    if not replicas:
        fault = "has no replicas"
    elif len(replicas) != expected:
        fault = f"has {len(replicas)} replicas, partition 0 has {expected}"
    elif len(dict.fromkeys(replicas)) != len(replicas):
        fault = f"names a broker twice: {list(replicas)}"
    elif min(replicas) < 0:
        fault = f"names a negative broker id: {list(replicas)}"
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {partition} {fault}")


def explicit(
    chosen: Sequence[tuple[int, ...]], added: int, first: int, factor: int, brokers: Brokers
) -> dict[int, tuple[int, ...]]:
    """Return the replicas that a request chose for new partitions, by partition number (V5).

    `added` is the number of new partitions, `first` the number of the first new partition, and
    `factor` the number of replicas of each partition.

    Raises KafkaError if the partitions cannot have these replicas.
    """
    if len(chosen) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(chosen)} assignments for {added} new partitions: one for each expected",
        )
    new = dict(enumerate(chosen, first))
    for partition, replicas in new.items():
        check_replicas(partition, replicas, factor)
        unknown = [replica for replica in replicas if replica not in brokers]
        if unknown:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {partition} names brokers {unknown}, live brokers are"
                f" {sorted(brokers)}",
            )
    return new
