"""Answers of a group's coordinator, without versions and bytes, and its refusals.

The API omits fields that a version lacks. LeaveGroup before version 3 has the error of its only
member at the top. JoinGroup before version 7 has no protocol type, and "" for no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_EPOCH, TopicPartition
from tidelog.group.records import UNKNOWN_INCARNATION, PartitionIncarnation
from tidelog.group.requests import (
    NO_GENERATION,
    NO_MEMBER,
    Asked,
    DeleteGroupAsked,
    DescribeAsked,
    HeartbeatAsked,
    JoinAsked,
    LeaveAsked,
    OffsetCommitAsked,
    OffsetDeleteAsked,
    OffsetFetchAsked,
    SyncAsked,
)

#: Offset of a partition for which nothing was committed.
NO_OFFSET = -1


class JoinedMember(NamedTuple):
    """A member as the group's leader receives it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """JoinGroup's answer; `members` for the leader only."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """SyncGroup's answer."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Heartbeat's answer."""

    error: ErrorCode


class LeaveResult(NamedTuple):
    """The result for one member that was to leave."""

    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """LeaveGroup's answer."""

    error: ErrorCode
    members: tuple[LeaveResult, ...] = ()


PartitionErrors = tuple[tuple[TopicPartition, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class OffsetCommitAnswer:
    """OffsetCommit's answer."""

    partitions: PartitionErrors


class FetchedOffset(NamedTuple):
    """A committed offset; NO_OFFSET where there is none."""

    topic_partition: TopicPartition
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    #: The partition in which it was committed.
    incarnation: PartitionIncarnation = UNKNOWN_INCARNATION


@dataclass(frozen=True, slots=True)
class OffsetFetchAnswer:
    """OffsetFetch's answer for one group."""

    error: ErrorCode
    offsets: tuple[FetchedOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetDeleteAnswer:
    """OffsetDelete's answer."""

    error: ErrorCode
    partitions: PartitionErrors = ()


class DescribedMember(NamedTuple):
    """A member as DescribeGroups shows it; metadata and assignment in a stable group only."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribeAnswer:
    """DescribeGroups' answer for one group."""

    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroupAnswer:
    """DeleteGroups' answer for one group."""

    error: ErrorCode


class ListedGroup(NamedTuple):
    """A group as ListGroups shows it; its type is always "classic"."""

    group_id: str
    protocol_type: str
    state: str


Answer = (
    JoinAnswer
    | SyncAnswer
    | HeartbeatAnswer
    | LeaveAnswer
    | OffsetCommitAnswer
    | OffsetFetchAnswer
    | OffsetDeleteAnswer
    | DescribeAnswer
    | DeleteGroupAnswer
)


def refusal(asked: Asked, error: ErrorCode) -> Answer:
    """Return the answer that carries `error` for the whole request."""
    match asked:
        case JoinAsked():
            return JoinAnswer(error, asked.member_id)
        case SyncAsked():
            return SyncAnswer(error)
        case HeartbeatAsked():
            return HeartbeatAnswer(error)
        case LeaveAsked():
            return LeaveAnswer(error)
        case OffsetCommitAsked():
            return OffsetCommitAnswer(
                tuple((offset.topic_partition, error) for offset in asked.offsets)
            )
        case OffsetFetchAsked():
            return OffsetFetchAnswer(error)
        case OffsetDeleteAsked():
            return OffsetDeleteAnswer(error)
        case DescribeAsked():
            return DescribeAnswer(error)
        case _:
            assert isinstance(asked, DeleteGroupAsked)
            return DeleteGroupAnswer(error)
