"""A client's request to the coordinator of a group, and the error response to the request.

Requests and responses are messages of `tidelog.wire`. Each request is about one group. The broker
splits a message for several groups (batched OffsetFetch, DescribeGroups, DeleteGroups), and each
answer is one group's part of the response. The caller numbers each request with a ticket, by which
it recognizes the answer; no two waiting requests may have the same ticket. The caller fills in the
fields that an early version of a request lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, Generic, TypeVar

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.records import UNKNOWN_INCARNATION, PartitionIncarnation
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidelog.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

#: Member id of a client that has no member id yet, or that commits offsets without being a member.
NO_MEMBER = ""
#: From this version of JoinGroup on, a new client first gets MEMBER_ID_REQUIRED with its id
#: (KIP-394).
MEMBER_ID_REQUIRED_VERSION = 4
#: From this version of JoinGroup on, the response can make a leader skip the assignment (KIP-814).
SKIP_ASSIGNMENT_VERSION = 9
#: From this version of DescribeGroups on, a group that does not exist is an error.
GROUP_ID_NOT_FOUND_VERSION = 6

M = TypeVar("M")


def any_incarnation(_: TopicPartition) -> PartitionIncarnation:
    """Return `UNKNOWN_INCARNATION`, with which every partition counts as existing."""
    return UNKNOWN_INCARNATION


@dataclass(frozen=True, slots=True)
class Asked(Generic[M]):
    """A client's request about one group, as the broker passes it to the coordinator."""

    ticket: int
    group_id: str
    message: M = field(hash=False)
    version: int
    #: Client id of the sender, for JoinGroup.
    client_id: str = ""
    client_host: str = ""
    #: Random text, which the coordinator appends to a new member id (JoinGroup).
    uuid: str = ""
    #: Returns the present incarnation of a partition, as the coordinator's broker knows it.
    incarnation_of: Callable[[TopicPartition], PartitionIncarnation] = any_incarnation


def refusal(asked: Asked[Any], error: ErrorCode) -> Any:
    """Return the answer that carries `error` for the whole request."""
    match asked.message:
        case JoinGroupRequest(member_id=member_id):
            return join_error(error, member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=error)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=error)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=error)
        case OffsetCommitRequest() as message:
            errors = (existing_error(asked, key, error) for key in committed_keys(message))
            return commit_response(message, errors)
        case OffsetFetchRequestGroup():
            return OffsetFetchResponseGroup(asked.group_id, error_code=error)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=error)
        case DescribeGroupsRequest():
            return DescribedGroup(error, asked.group_id)
        case _:
            assert isinstance(asked.message, DeleteGroupsRequest)
            return DeletableGroupResult(asked.group_id, error)


def join_error(error: ErrorCode, member_id: str = NO_MEMBER) -> JoinGroupResponse:
    """Return a JoinGroup's response with an error."""
    return JoinGroupResponse(error_code=error, protocol_name=None, member_id=member_id)


def committed_keys(message: OffsetCommitRequest) -> Iterable[TopicPartition]:
    """Return the partitions of an OffsetCommit, in the request's order."""
    return (
        TopicPartition(topic.name, each.partition_index)
        for topic in message.topics
        for each in topic.partitions
    )


def existing_error(asked: Asked[Any], key: TopicPartition, error: ErrorCode) -> ErrorCode:
    """Return `error` if the partition exists, else UNKNOWN_TOPIC_OR_PARTITION."""
    return error if asked.incarnation_of(key).exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def commit_response(
    message: OffsetCommitRequest, errors: Iterable[ErrorCode]
) -> OffsetCommitResponse:
    """Return an OffsetCommit's response with the errors of its partitions, in request order."""
    error = iter(errors)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(each.partition_index, next(error))
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
