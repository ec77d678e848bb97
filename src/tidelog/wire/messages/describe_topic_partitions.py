"""DescribeTopicPartitions (key 75), version 0: topics and their partitions, page by page (KIP-966).

It is flexible. Tagged fields from 20,000 on are tidelog's own (E4, E6): clients that do not know
them skip them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.wire.messages.update_metadata import (
    AWAITED_TAG,
    IS_WAITING_TAG,
    QUORUM_TAG,
    STATUSES_TAG,
)
from tidelog.wire.schema import Api, array, boolean, int16, int32, nested, string, uuid
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class TopicRequest:
    """A topic by name."""

    name: str = string("0+")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The first partition that the next page holds; topics are in the order of their names."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    """No `topics`: all of them; `cursor` None begins with the first."""

    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", 2000)
    cursor: Cursor | None = nested(Cursor, "0+", nullable="0+")


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    """Leader -1: none. Eligible leader replicas are None where the cluster keeps none."""

    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", -1, ignorable=True)
    replica_nodes: Sequence[int] = array("int32", "0+")
    isr_nodes: Sequence[int] = array("int32", "0+")
    eligible_leader_replicas: Sequence[int] | None = array("int32", "0+", None, nullable="0+")
    last_known_elr: Sequence[int] | None = array("int32", "0+", None, nullable="0+")
    offline_replicas: Sequence[int] = array("int32", "0+", ignorable=True)
    #: Members of a partition without a leader, as in UpdateMetadata.
    awaited: Sequence[int] = array("int32", "0+", ignorable=True, tag=AWAITED_TAG)
    statuses: Sequence[int] = array("int8", "0+", ignorable=True, tag=STATUSES_TAG)
    quorum: int = int32("0+", ignorable=True, tag=QUORUM_TAG)
    is_waiting: bool = boolean("0+", ignorable=True, tag=IS_WAITING_TAG)


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    """A topic or the reason for none; authorized operations -2147483648: not requested."""

    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: bytes = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, "0+"
    )
    topic_authorized_operations: int = int32("0+", -0x80000000)


@dataclass(slots=True)
class DescribeTopicPartitionsResponse:
    """`next_cursor` None: this page is the last."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(
        DescribeTopicPartitionsResponseTopic, "0+"
    )
    next_cursor: Cursor | None = nested(Cursor, "0+", nullable="0+")


API = Api(
    key=75,
    name="DescribeTopicPartitions",
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
