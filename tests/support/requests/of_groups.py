"""A sensible request for each API of groups, at each version that is served of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.wire.data.consumer_protocol import SUBSCRIPTION, ConsumerProtocolSubscription
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest
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
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.registry import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)

#: Every request is about this group, and about the member m of its generation 1.
GROUP = "group"


def join_group(version: int, topic: str, group_id: str = GROUP) -> JoinGroupRequest:
    """A consumer of one topic that has no member id yet."""
    metadata = SUBSCRIPTION.encode(ConsumerProtocolSubscription([topic]), 1)
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata)],
    )


def _sync_group(version: int, topic: str) -> SyncGroupRequest:
    request = SyncGroupRequest(GROUP, 1, "m", assignments=[SyncGroupRequestAssignment("m", b"a")])
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return request


def _leave_group(version: int, topic: str) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest(GROUP, "m")
    return LeaveGroupRequest(GROUP, members=[MemberIdentity("m")])


def offset_commit(version: int, topic: str, partition: int = 0) -> OffsetCommitRequest:
    """Offset 7 of one partition, by no member."""
    offset = OffsetCommitRequestPartition(partition, 7, committed_metadata="")
    return OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(topic, [offset])])


def _offset_fetch(version: int, topic: str) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(topic, [0])])
    wanted = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopics(topic, [0])])
    return OffsetFetchRequest(groups=[wanted])


def _offset_delete(version: int, topic: str) -> OffsetDeleteRequest:
    wanted = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])
    return OffsetDeleteRequest(GROUP, [wanted])


GROUP_REQUESTS: dict[int, Callable[[int, str], Any]] = {
    OFFSET_COMMIT: offset_commit,
    OFFSET_FETCH: _offset_fetch,
    # A group of its own: where another member is in the group, it would be waited for.
    JOIN_GROUP: lambda version, topic: join_group(version, topic, f"{GROUP}-{version}-{topic}"),
    HEARTBEAT: lambda version, topic: HeartbeatRequest(GROUP, 1, "m"),
    LEAVE_GROUP: _leave_group,
    SYNC_GROUP: _sync_group,
    DESCRIBE_GROUPS: lambda version, topic: DescribeGroupsRequest([GROUP, "nowhere"]),
    LIST_GROUPS: lambda version, topic: ListGroupsRequest(),
    DELETE_GROUPS: lambda version, topic: DeleteGroupsRequest([GROUP]),
    OFFSET_DELETE: _offset_delete,
}
