"""Configuration, requests of administrators, notifications, producer ids (V8, G3).

Kafka's keys and spellings (`ConfigEntityZNode`, `PreferredReplicaElectionZNode`,
`ReassignPartitionsZNode`, `IsrChangeNotificationSequenceZNode`,
`LogDirEventNotificationSequenceZNode`, `ProducerIdBlockZNode`, `FeatureZNode` of 3.9).
`/admin/delete_topics/T` is a node without data. Requests to add and to remove partitions are the
design's own (V7).
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
    """`/config/<type>/<entity>`; keys in ascending order."""
    return encode_json({"version": 1, "config": dict(sorted(config.items()))})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """The settings of an entity, none for a node without data; LayoutError."""
    if not data:
        return {}
    config = parse_object(path, data).object("config")
    return {key: config.text(key) for key in config.names()}


def encode_config_change(entity_type: str, entity: str) -> bytes:
    """`/config/changes/config_change_NNN`, version 2: which entity changed."""
    return encode_json({"version": 2, "entity_path": f"{entity_type}/{entity}"})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """(entity type, entity) of a change, version 1 or 2; LayoutError."""
    fields = parse_object(path, data)
    if fields.integer("version", minimum=1, maximum=2) == 1:
        return fields.text("entity_type"), fields.text("entity_name")
    entity_type, slash, entity = fields.text("entity_path").partition("/")
    if not (entity_type and slash and entity):
        raise fields.fault("entity_path", "type/entity")
    return entity_type, entity


def encode_partition_list(partitions: Sequence[TopicPartition]) -> bytes:
    """`/admin/preferred_replica_election`."""
    return encode_json({"version": 1, "partitions": _listed(partitions)})


def decode_partition_list(path: str, data: bytes) -> list[TopicPartition]:
    """The partitions asked for, each once; LayoutError."""
    return _partitions(parse_object(path, data))


def encode_reassignments(entries: Sequence[ReassignmentEntry]) -> bytes:
    """`/admin/reassign_partitions`, and the queue; `original_replicas` and `throttle`, in bytes a
    second, are keys of ours (R1, R4)."""
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
    """Where partitions are to be, as an administrator wrote it or we did; whether that can be is
    the controller's matter. LayoutError, also for a partition that is named twice."""
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
    """`/admin/partitions_add/T/P`: the replicas of a partition to add, the preferred leader first;
    none leave them to the controller (V7)."""
    return encode_value(list(replicas))


def decode_partition_addition(path: str, data: bytes) -> tuple[int, ...]:
    """The replicas asked for, none where the node has no data; LayoutError."""
    return parse_integers(path, data) if data else ()


def encode_partition_removal(drain: bool) -> bytes:
    """`/admin/partitions_remove/T/P`: whether every consumer group is to have read it first."""
    return encode_json({"version": 1, "drain": drain})


def decode_partition_removal(path: str, data: bytes) -> bool:
    """Whether to drain; a node without data does not ask for it. LayoutError."""
    return parse_object(path, data).boolean("drain", False) if data else False


def encode_isr_change(partitions: Sequence[TopicPartition]) -> bytes:
    """`/isr_change_notification/isr_change_NNN`: whose ISR a leader changed itself (A12)."""
    return encode_json({"version": 1, "partitions": _listed(partitions)})


def decode_isr_change(path: str, data: bytes) -> list[TopicPartition]:
    """The partitions whose ISR changed, each once; LayoutError."""
    return _partitions(parse_object(path, data))


def encode_log_dir_event(broker_id: int) -> bytes:
    """`/log_dir_event_notification/log_dir_event_NNN`: a log directory failed (D4)."""
    return encode_json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker whose directory failed; LayoutError."""
    return parse_object(path, data).integer("broker", minimum=0)


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    """`/latest_producer_id_block`: the last block given, `first` to `last` inclusive (G3)."""
    return encode_json(
        {
            "version": 1,
            "broker": broker_id,
            "block_start": str(first),
            "block_end": str(last),
        }
    )


def decode_producer_id_block(path: str, data: bytes) -> tuple[int, int, int]:
    """(broker, first, last) of the last block given; LayoutError."""
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
