"""Nodes that request reassignments and that only tidelog has (R8, R12, R20).

`/admin/reassignment_requests/request_NNN` requests the reassignment of several partitions, and
`/admin/partitions_reassigned/T/P` the reassignment of one partition. `/admin/reassignments/T/P` is
an accepted request; the id of the transaction that created the node identifies the reassignment.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.core.types import TopicPartition
from tidelog.metadata.json_fields import (
    encode_json,
    encode_value,
    is_number,
    parse_integers,
    parse_object,
)

Assignments = Mapping[TopicPartition, tuple[int, ...]]


def encode_reassignment_request(assignments: Assignments) -> bytes:
    """Return the data of `/admin/reassignment_requests/request_NNN`."""
    topics: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), replicas in assignments.items():
        topics.setdefault(topic, {})[str(partition)] = list(replicas)
    return encode_json({"version": 1, "assignments": topics})


def decode_reassignment_request(path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the target replicas of each partition. Raises LayoutError.

    The controller checks whether the brokers and partitions exist.
    """
    fields = parse_object(path, data)
    fields.integer("version", minimum=1, maximum=1)
    topics = fields.object("assignments")
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in topics.names():
        if not topic.isascii():
            raise topics.fault(topic, "the name of a topic as key")
        partitions = topics.object(topic)
        for number in partitions.names():
            if not is_number(number):
                raise partitions.fault(number, "the number of a partition as key")
            found[TopicPartition(topic, int(number))] = partitions.integers(number, distinct=False)
    if not found:
        raise fields.fault("assignments", "at least one partition of a topic")
    return found


def encode_accepted_reassignment(replicas: tuple[int, ...]) -> bytes:
    """Return the data of `/admin/reassignments/T/P`."""
    return encode_json({"version": 1, "replicas": list(replicas)})


def decode_accepted_reassignment(path: str, data: bytes) -> tuple[int, ...]:
    """Return the partition's target replicas. Raises LayoutError."""
    fields = parse_object(path, data)
    fields.integer("version", minimum=1, maximum=1)
    return fields.integers("replicas", distinct=False)


def encode_partition_reassigned(replicas: tuple[int, ...]) -> bytes:
    """Return the data of `/admin/partitions_reassigned/T/P`."""
    return encode_value(list(replicas))


def decode_partition_reassigned(path: str, data: bytes) -> tuple[int, ...]:
    """Return the partition's target replicas. Raises LayoutError."""
    return parse_integers(path, data)
