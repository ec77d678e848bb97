"""Nodes of configurations, administrators' requests, notifications and producer ids (V8, G3).

The keys and spellings are Kafka's (`ConfigEntityZNode`, `PreferredReplicaElectionZNode`,
`ReassignPartitionsZNode`, `IsrChangeNotificationSequenceZNode`,
`LogDirEventNotificationSequenceZNode`, `ProducerIdBlockZNode`, `FeatureZNode` of 3.9).
`/admin/delete_topics/T` is a node without data. Requests to add and to remove partitions are
tidelog's own (V7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.metadata.json_fields import (
    INT64_MAX,
    Fields,
    encode_json,
    encode_value,
    parse_integers,
    parse_object,
)

_LOG_DIR_FAILURE = 1
_INT16_MAX = 2**15 - 1


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return the data of `/config/<type>/<entity>`, with keys in ascending order."""
    return encode_json({"version": 1, "config": dict(sorted(config.items()))})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Return an entity's settings; empty if the node has no data. Raises LayoutError."""
    if not data:
        return {}
    config = parse_object(path, data).object("config")
    return {key: config.text(key) for key in config.names()}


def encode_config_change(entity_type: str, entity: str) -> bytes:
    """Return the data of `/config/changes/config_change_NNN`, version 2: the changed entity."""
    return encode_json({"version": 2, "entity_path": f"{entity_type}/{entity}"})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """Return the entity type and the entity of a configuration change. Raises LayoutError."""
    fields = parse_object(path, data)
    if fields.integer("version", minimum=1, maximum=2) == 1:
        return fields.text("entity_type"), fields.text("entity_name")
    entity_type, slash, entity = fields.text("entity_path").partition("/")
    if not (entity_type and slash and entity):
        raise fields.fault("entity_path", "type/entity")
    return entity_type, entity


def encode_partition_list(partitions: Sequence[TopicPartition]) -> bytes:
    """Return the data of `/admin/preferred_replica_election`."""
    return encode_json({"version": 1, "partitions": _listed(partitions)})


def decode_partition_list(path: str, data: bytes) -> list[TopicPartition]:
    """Return the partitions of an election, without repetition. Raises LayoutError."""
    return _partitions(parse_object(path, data))


def encode_reassignments(entries: Sequence[ReassignmentEntry]) -> bytes:
    """Return the data of `/admin/reassign_partitions`, and of the queue of reassignments.

    The keys `original_replicas` and `throttle`, in bytes per second, are tidelog's own (R1, R4).
    """
    listed: list[dict[str, object]] = []
    for (topic, partition), replicas, original, throttle in entries:
        item: dict[str, object] = {"topic": topic, "partition": partition, "replicas": replicas}
        if original:
            item["original_replicas"] = original
        if throttle:
            item["throttle"] = throttle
        listed.append(item)
    return encode_json({"version": 1, "partitions": listed})


def decode_reassignments(path: str, data: bytes) -> list[ReassignmentEntry]:
    """Return the requested reassignments: partitions with their target replicas.

    The controller checks whether brokers and partitions exist. Raises LayoutError, also if a
    partition is named twice.
    """
    found: dict[TopicPartition, ReassignmentEntry] = {}
    fields = parse_object(path, data)
    fields.integer("version", 1, minimum=1, maximum=1)
    for item in fields.objects("partitions"):
        topic_partition = TopicPartition(item.text("topic"), item.integer("partition", minimum=0))
        replicas = item.integers("replicas", distinct=False)
        original = item.integers("original_replicas") if item.has("original_replicas") else ()
        if topic_partition in found:
            raise item.fault("partition", "a partition that is not named before")
        throttle = item.integer("throttle", 0, minimum=0, maximum=INT64_MAX)
        found[topic_partition] = ReassignmentEntry(topic_partition, replicas, original, throttle)
    return list(found.values())


def encode_partition_addition(replicas: Sequence[int]) -> bytes:
    """Return the data of `/admin/partitions_add/T/P`: the new partition's replicas.

    The first replica is the preferred leader. If no replica is given, the controller chooses the
    replicas (V7).
    """
    return encode_value(list(replicas))


def decode_partition_addition(path: str, data: bytes) -> tuple[int, ...]:
    """Return the requested replicas; empty if the node has no data. Raises LayoutError."""
    return parse_integers(path, data) if data else ()


def encode_partition_removal(drain: bool) -> bytes:
    """Return the data of `/admin/partitions_remove/T/P`.

    With `drain`, the controller waits until every consumer group has read the partition.
    """
    return encode_json({"version": 1, "drain": drain})


def decode_partition_removal(path: str, data: bytes) -> bool:
    """Return `drain`: whether the removal waits for consumer groups; False if the node has no data.

    Raises LayoutError.
    """
    return parse_object(path, data).boolean("drain", False) if data else False


def encode_isr_change(partitions: Sequence[TopicPartition]) -> bytes:
    """Return the data of `/isr_change_notification/isr_change_NNN`.

    A leader creates this node after it changed the ISRs of these partitions in the store itself
    (A12).
    """
    return encode_json({"version": 1, "partitions": _listed(partitions)})


def decode_isr_change(path: str, data: bytes) -> list[TopicPartition]:
    """Return the partitions whose ISR changed, without repetition. Raises LayoutError."""
    return _partitions(parse_object(path, data))


def encode_log_dir_event(broker_id: int) -> bytes:
    """Return the data of `/log_dir_event_notification/log_dir_event_NNN`, which reports that a log
    directory of `broker_id` failed (D4).
    """
    return encode_json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """Return the broker whose log directory failed. Raises LayoutError."""
    return parse_object(path, data).integer("broker", minimum=0)


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    """Return the data of `/latest_producer_id_block`: the ids from `first` to `last`, inclusive
    (G3).
    """
    return encode_json(
        {
            "version": 1,
            "broker": broker_id,
            "block_start": str(first),
            "block_end": str(last),
        }
    )


def decode_producer_id_block(path: str, data: bytes) -> tuple[int, int, int]:
    """Return broker, first and last id of the last block of producer ids. Raises LayoutError."""
    fields = parse_object(path, data)
    first = fields.decimal_text("block_start")
    last = fields.decimal_text("block_end")
    if last < first:
        raise fields.fault("block_end", f"at least block_start, {first}")
    return fields.integer("broker"), first, last


def _listed(partitions: Sequence[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": item.topic, "partition": item.partition} for item in partitions]


def _partitions(fields: Fields) -> list[TopicPartition]:
    listed = [
        TopicPartition(item.text("topic"), item.integer("partition", minimum=0))
        for item in fields.objects("partitions")
    ]
    return list(dict.fromkeys(listed))
