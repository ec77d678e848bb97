"""Paths of every node, and the nodes that the first broker creates (V3 to V8).

The layout is Kafka's in ZooKeeper mode (3.9, `kafka.zk.ZkData`), so Kafka brokers can join the
cluster. `layout_brokers` encodes and decodes the controller, registrations and the cluster id.
`layout_topics` does so for assignments and partition states, `layout_reassignments` for
reassignments, and `layout_admin` for configurations, requests, notifications and producer ids. This
module also exports the functions of the four `layout_*` modules. Decoders raise only LayoutError,
with path, key and fault.
"""

from __future__ import annotations

from tidelog.core.types import TopicPartition
from tidelog.metadata.json_fields import LayoutError, is_number
from tidelog.metadata.layout_admin import (
    decode_config,
    decode_config_change,
    decode_isr_change,
    decode_log_dir_event,
    decode_partition_addition,
    decode_partition_list,
    decode_partition_removal,
    decode_producer_id_block,
    decode_reassignments,
    encode_config,
    encode_config_change,
    encode_isr_change,
    encode_log_dir_event,
    encode_partition_addition,
    encode_partition_list,
    encode_partition_removal,
    encode_producer_id_block,
    encode_reassignments,
)
from tidelog.metadata.layout_brokers import (
    decode_broker,
    decode_cluster_id,
    decode_controller_epoch,
    decode_stamp,
    decode_store_went_back,
    encode_broker,
    encode_cluster_id,
    encode_controller,
    encode_controller_epoch,
    encode_stamp,
    encode_store_went_back,
)
from tidelog.metadata.layout_reassignments import (
    decode_accepted_reassignment,
    decode_partition_reassigned,
    decode_reassignment_request,
    encode_accepted_reassignment,
    encode_partition_reassigned,
    encode_reassignment_request,
)
from tidelog.metadata.layout_topics import (
    TopicAssignment,
    decode_partition_state,
    decode_topic,
    decode_topic_id,
    encode_partition_state,
    encode_topic,
    rewrite_isr,
)
from tidelog.metadata.paths import name_of

CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
#: Parent of the brokers' stamps, which are tidelog's own (E8). Each broker writes its stamp when it
#: registers and when it stops, and so notices later if the store was restored from an older copy.
BROKER_STAMPS = "/brokers/stamps"
#: tidelog's own node (E8), which marks a store that was restored from an older copy. A broker that
#: notices the older copy creates the node, and an operator who accepts the store removes the node.
STORE_WENT_BACK = "/brokers/store_went_back"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
ADMIN = "/admin"
DELETE_TOPICS = "/admin/delete_topics"
PARTITIONS_ADD = "/admin/partitions_add"
PARTITIONS_REMOVE = "/admin/partitions_remove"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
#: tidelog's own node (R2): an administrator creates it to request the cancellation of all
#: reassignments.
CANCEL_REASSIGNMENTS = "/admin/cancel_reassignment_in_progress"
#: tidelog's own node (R11): while it exists, no reassignment begins.
FREEZE_REASSIGNMENTS = "/admin/reassign_cancel"
#: tidelog's own node (R8), which holds the queue of reassignments that wait to begin.
REASSIGNMENT_QUEUE = "/admin/reassign_partitions_queue"
#: tidelog's own parent nodes (R12, R20) of requests for reassignments. Children of the first are
#: requests for several partitions, children of the second are requests for one partition, and
#: children of the third are requests that the controller has accepted.
REASSIGNMENT_REQUESTS = "/admin/reassignment_requests"
REASSIGNMENT_REQUEST_PREFIX = "/admin/reassignment_requests/request_"
PARTITIONS_REASSIGNED = "/admin/partitions_reassigned"
REASSIGNMENTS = "/admin/reassignments"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

#: Entity types below /config (`ConfigType.ALL`); DEFAULT_ENTITY is the entity that holds a type's
#: defaults.
CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY = "<default>"

#: Persistent, empty nodes that a broker creates at its start if they are missing, parents first:
#: Kafka's (`ZkData.PersistentZkPaths`), and the parents of the request nodes that only tidelog has
#: (V7).
PERSISTENT_ROOTS = (
    "/consumers",
    BROKERS,
    BROKER_IDS,
    TOPICS,
    CONFIG,
    CONFIG_CHANGES,
    ADMIN,
    DELETE_TOPICS,
    PARTITIONS_ADD,
    PARTITIONS_REMOVE,
    REASSIGNMENT_REQUESTS,
    PARTITIONS_REASSIGNED,
    REASSIGNMENTS,
    BROKER_SEQUENCE,
    BROKER_STAMPS,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
    CLUSTER,
)


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_stamp_path(broker_id: int) -> str:
    """Return the path of a broker's stamp, which reveals an older copy of the store (E8)."""
    return f"{BROKER_STAMPS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def topic_partitions_path(topic: str) -> str:
    """Return the path of the node that is the parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """Return the path of a partition's node, which is the parent of its state node."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """Return the path of a partition's state: its leader and its ISR."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def config_path(entity_type: str, entity: str) -> str:
    """Return the path of an entity's configuration; `entity_type` is one of CONFIG_TYPES."""
    return f"{CONFIG}/{entity_type}/{entity}"


def delete_topic_path(topic: str) -> str:
    """Return the path of the request to delete a topic."""
    return f"{DELETE_TOPICS}/{topic}"


def partition_request_path(partition: TopicPartition, *, is_removal: bool) -> str:
    """Return the path of the request to remove a partition (`is_removal`) or to add it (V7)."""
    return (
        f"{partition_requests_path(partition.topic, is_removal=is_removal)}/{partition.partition}"
    )


def partition_requests_path(topic: str, *, is_removal: bool) -> str:
    """Return the parent path of a topic's requests to remove (`is_removal`) or to add
    partitions.
    """
    return f"{PARTITIONS_REMOVE if is_removal else PARTITIONS_ADD}/{topic}"


def accepted_reassignment_path(partition: TopicPartition) -> str:
    """Return the path of the accepted request to reassign a partition (R12)."""
    return f"{REASSIGNMENTS}/{partition.topic}/{partition.partition}"


def partition_reassigned_path(partition: TopicPartition) -> str:
    """Return the path of the request to reassign one partition (R20)."""
    return f"{PARTITIONS_REASSIGNED}/{partition.topic}/{partition.partition}"


def parse_decimal_name(path: str) -> int:
    """Return the last part of a path as a number, such as a broker id; raise LayoutError if it is
    none.
    """
    name = name_of(path)
    if not is_number(name):
        raise LayoutError(path, f"{name!r} is not a number")
    return int(name)


__all__ = [
    "ADMIN",
    "BROKERS",
    "BROKER_IDS",
    "BROKER_SEQUENCE",
    "BROKER_STAMPS",
    "CANCEL_REASSIGNMENTS",
    "CLUSTER",
    "CLUSTER_ID",
    "CONFIG",
    "CONFIG_CHANGES",
    "CONFIG_CHANGE_PREFIX",
    "CONFIG_TYPES",
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "DEFAULT_ENTITY",
    "DELETE_TOPICS",
    "FREEZE_REASSIGNMENTS",
    "ISR_CHANGES",
    "ISR_CHANGE_PREFIX",
    "LOG_DIR_EVENTS",
    "LOG_DIR_EVENT_PREFIX",
    "PARTITIONS_ADD",
    "PARTITIONS_REASSIGNED",
    "PARTITIONS_REMOVE",
    "PERSISTENT_ROOTS",
    "PREFERRED_REPLICA_ELECTION",
    "PRODUCER_ID_BLOCK",
    "REASSIGNMENTS",
    "REASSIGNMENT_QUEUE",
    "REASSIGNMENT_REQUESTS",
    "REASSIGNMENT_REQUEST_PREFIX",
    "REASSIGN_PARTITIONS",
    "STORE_WENT_BACK",
    "TOPICS",
    "LayoutError",
    "TopicAssignment",
    "accepted_reassignment_path",
    "broker_path",
    "broker_stamp_path",
    "config_path",
    "decode_accepted_reassignment",
    "decode_broker",
    "decode_cluster_id",
    "decode_config",
    "decode_config_change",
    "decode_controller_epoch",
    "decode_isr_change",
    "decode_log_dir_event",
    "decode_partition_addition",
    "decode_partition_list",
    "decode_partition_reassigned",
    "decode_partition_removal",
    "decode_partition_state",
    "decode_producer_id_block",
    "decode_reassignment_request",
    "decode_reassignments",
    "decode_stamp",
    "decode_store_went_back",
    "decode_topic",
    "decode_topic_id",
    "delete_topic_path",
    "encode_accepted_reassignment",
    "encode_broker",
    "encode_cluster_id",
    "encode_config",
    "encode_config_change",
    "encode_controller",
    "encode_controller_epoch",
    "encode_isr_change",
    "encode_log_dir_event",
    "encode_partition_addition",
    "encode_partition_list",
    "encode_partition_reassigned",
    "encode_partition_removal",
    "encode_partition_state",
    "encode_producer_id_block",
    "encode_reassignment_request",
    "encode_reassignments",
    "encode_stamp",
    "encode_store_went_back",
    "encode_topic",
    "parse_decimal_name",
    "partition_path",
    "partition_reassigned_path",
    "partition_request_path",
    "partition_requests_path",
    "partition_state_path",
    "rewrite_isr",
    "topic_partitions_path",
    "topic_path",
]
