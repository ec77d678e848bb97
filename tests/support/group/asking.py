"""Requests to a coordinator of groups, and what their answers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.asked import Asked
from tidelog.group.records import UNKNOWN_INCARNATION, PartitionIncarnation
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

G = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Committed(NamedTuple):
    """One partition of an OffsetCommit, and the partition's present incarnation."""

    topic_partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    incarnation: PartitionIncarnation = UNKNOWN_INCARNATION


def protocols(*names: str, metadata: bytes = b"t") -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name, metadata) for name in names]


def joining(
    member_id: str = "", *, group_id: str = G, version: int = 9, uuid: str = "u", **changes: Any
) -> Asked[JoinGroupRequest]:
    """JoinGroup; `changes` are fields of the message, `instance_id` for short."""
    if "instance_id" in changes:
        changes["group_instance_id"] = changes.pop("instance_id")
    message = JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        **{
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": protocols("range"),
            **changes,
        },
    )
    return Asked(0, group_id, message, version, "c", "/h", uuid)


def syncing(
    member_id: str,
    generation_id: int,
    *,
    group_id: str = G,
    instance_id: str | None = None,
    assignments: Sequence[tuple[str, bytes]] = (),
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> Asked[SyncGroupRequest]:
    given = [SyncGroupRequestAssignment(*each) for each in assignments]
    message = SyncGroupRequest(
        group_id, generation_id, member_id, instance_id, protocol_type, protocol_name, given
    )
    return Asked(0, group_id, message, 5)


def heartbeating(
    member_id: str, generation_id: int, instance_id: str | None = None, group_id: str = G
) -> Asked[HeartbeatRequest]:
    message = HeartbeatRequest(group_id, generation_id, member_id, instance_id)
    return Asked(0, group_id, message, 4)


def leaving(*members: MemberIdentity, group_id: str = G) -> Asked[LeaveGroupRequest]:
    return Asked(0, group_id, LeaveGroupRequest(group_id, members=list(members)), 5)


def committing(
    *offsets: Committed,
    group_id: str = G,
    generation_id: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    retention_ms: int = -1,
) -> Asked[OffsetCommitRequest]:
    topics = [
        OffsetCommitRequestTopic(
            key.topic,
            [OffsetCommitRequestPartition(key.partition, offset, leader_epoch, metadata)],
        )
        for key, offset, leader_epoch, metadata, _ in offsets
    ]
    message = OffsetCommitRequest(
        group_id, generation_id, member_id, instance_id, retention_ms, topics
    )
    present = {each.topic_partition: each.incarnation for each in offsets}
    return Asked(0, group_id, message, 9, incarnation_of=present.__getitem__)


def fetching(
    group_id: str = G, partitions: Sequence[TopicPartition] | None = None
) -> Asked[OffsetFetchRequestGroup]:
    topics = None
    if partitions is not None:
        topics = [OffsetFetchRequestTopics(topic, [number]) for topic, number in partitions]
    return Asked(0, group_id, OffsetFetchRequestGroup(group_id, topics=topics), 9)


def deleting_offsets(*keys: TopicPartition, group_id: str = G) -> Asked[OffsetDeleteRequest]:
    topics = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number)])
        for topic, number in keys
    ]
    return Asked(0, group_id, OffsetDeleteRequest(group_id, topics), 0)


def describing(group_id: str = G, version: int = 5) -> Asked[DescribeGroupsRequest]:
    return Asked(0, group_id, DescribeGroupsRequest([group_id]), version)


def deleting(group_id: str = G) -> Asked[DeleteGroupsRequest]:
    return Asked(0, group_id, DeleteGroupsRequest([group_id]), 2)


def under(ticket: int, asked: Asked[Any]) -> Asked[Any]:
    """The same request under a ticket."""
    return replace(asked, ticket=ticket)


def fetched(answer: Any) -> dict[TopicPartition, int]:
    """Offsets in the answer to a fetch."""
    return {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


def errors_of(answer: Any) -> list[ErrorCode]:
    """The error of an answer; of offsets that were committed or deleted, those of partitions."""
    if getattr(answer, "error_code", 0) or not hasattr(answer, "topics"):
        return [ErrorCode(answer.error_code)]
    return [ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions]
