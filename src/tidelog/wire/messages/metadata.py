"""Metadata (key 3), versions 0 to 13: brokers, controller, topics, leaders, ISRs.

In version 0, an empty list of topics requests all topics. From version 1 on, null requests all
topics, and an empty list requests none. Version 4 lets the client forbid auto-creation, version 5
lists offline replicas, version 7 leader epochs, and versions 8 to 10 list authorized operations of
the cluster; version 9 is flexible. Version 10 carries topic ids in responses, and version 12 takes
topic ids in requests (KIP-516). Version 13 has an error of the whole response (KIP-1102).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, string, uuid


@dataclass(slots=True)
class MetadataRequestTopic:
    """A topic by name, or, from version 12 on, by id with a null name."""

    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


@dataclass(slots=True)
class MetadataRequest:
    """The topics whose metadata is requested; null `topics` mean all topics."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@dataclass(slots=True)
class MetadataResponseBroker:
    """A live broker, with its address on the listener of the request."""

    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", None, nullable="1+", ignorable=True)


@dataclass(slots=True)
class MetadataResponsePartition:
    """A partition; the leader's id is -1 if the partition has no leader.

    `offline_replicas` are the replicas on dead brokers or in failed log directories.
    """

    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", -1, ignorable=True)
    replica_nodes: Sequence[int] = array("int32", "0+")
    isr_nodes: Sequence[int] = array("int32", "0+")
    offline_replicas: Sequence[int] = array("int32", "5+", ignorable=True, rare=True)


@dataclass(slots=True)
class MetadataResponseTopic:
    """A topic with its partitions, or the error."""

    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", -0x80000000)


@dataclass(slots=True)
class MetadataResponse:
    """The metadata; authorized operations are a bit field, -2147483648 if not requested."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", None, nullable="2+", ignorable=True)
    controller_id: int = int32("1+", -1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", -0x80000000)
    error_code: int = int16("13+", ignorable=True)


API = Api(
    key=3,
    name="Metadata",
    request=MetadataRequest,
    response=MetadataResponse,
    min_version=0,
    max_version=13,
    first_flexible_version=9,
)
