"""DescribeTopicPartitions (key 75), version 0: topics and their partitions, page by page (KIP-966).

The only version is flexible. Only tidelog has the fields with tags from 20,000 on (E4, E6); other
clients skip these fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.messages.update_metadata import (
    AWAITED_TAG,
    IS_WAITING_TAG,
    QUORUM_TAG,
    STATUSES_TAG,
)
from tidelog.wire.schema import Api, array, boolean, int16, int32, nested, string, uuid


@dataclass(slots=True)
class TopicRequest:
    """A topic to describe, by name."""

    name: str = string("0+")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The first partition of the next page; topics are sorted by name."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    """The topics to describe from `cursor` on; empty `topics` mean all topics."""

    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", 2000)
    cursor: Cursor | None = nested(Cursor, "0+", nullable="0+")


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    """A partition; the leader's id is -1 if the partition has no leader.

    Eligible leader replicas are null if the cluster keeps none.
    """

    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", -1, ignorable=True)
    replica_nodes: Sequence[int] = array("int32", "0+")
    isr_nodes: Sequence[int] = array("int32", "0+")
    eligible_leader_replicas: Sequence[int] | None = array("int32", "0+", None, nullable="0+")
    last_known_elr: Sequence[int] | None = array("int32", "0+", None, nullable="0+")
    offline_replicas: Sequence[int] = array("int32", "0+", ignorable=True)
    #: Replicas that may lead a partition without a leader (E6).
    awaited: Sequence[int] = array("int32", "0+", ignorable=True, tag=AWAITED_TAG)
    #: A MemberStatus for each replica in `awaited`, in the same order (`core.leader_wait`).
    statuses: Sequence[int] = array("int8", "0+", ignorable=True, tag=STATUSES_TAG)
    quorum: int = int32("0+", ignorable=True, tag=QUORUM_TAG)
    is_waiting: bool = boolean("0+", ignorable=True, tag=IS_WAITING_TAG)


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    """A topic or the error; authorized operations are -2147483648 if not requested."""

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
    """One page of topics; a null `next_cursor` means that it is the last page."""

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
