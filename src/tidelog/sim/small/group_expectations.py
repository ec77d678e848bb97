"""The errors with which a coordinator of groups must respond, by the definition of each request.

`SeenGroup` is a group as it is just before a request. The functions state the rules of Kafka's
classic protocol without the coordinator's code. They return the error with which the coordinator
refuses a request at once, or NONE if it responds at once without an error. None means that the
response comes later.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupRequest
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest

EMPTY: Final = "Empty"
PREPARING: Final = "PreparingRebalance"
COMPLETING: Final = "CompletingRebalance"
STABLE: Final = "Stable"
DEAD: Final = "Dead"

_MEMBER_ID_REQUIRED_VERSION: Final = 4


class SeenMember(NamedTuple):
    """A member of a group."""

    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    #: Whether a JoinGroup or SyncGroup of the member waits.
    joins: bool
    syncs: bool
    is_new: bool
    #: Names and metadata of the member's protocols.
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class SeenGroup(NamedTuple):
    """A group, as its coordinator knows it."""

    state: str
    generation: int
    leader: str | None
    protocol_type: str | None
    protocol: str | None
    members: dict[str, SeenMember]
    #: Ids of clients that have not joined yet.
    pending: frozenset[str]
    has_replacement: bool
    #: Partitions with an offset that is committed or being written.
    partitions: frozenset[tuple[str, int]]
    #: Topics to which the members subscribe; None if they are unknown.
    topics: frozenset[str] | None


def seen_group(group: Any) -> SeenGroup:
    """Return the present state of a group, as its coordinator knows it."""
    return SeenGroup(
        group.state.value,
        group.generation_id,
        group.leader_id,
        group.protocol_type,
        group.protocol_name,
        {
            member_id: SeenMember(
                member.instance_id,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.join_ticket is not None,
                member.sync_ticket is not None,
                member.is_new,
                tuple((each.name, each.metadata) for each in member.protocols),
                member.assignment,
            )
            for member_id, member in group.members.items()
        },
        frozenset(group.pending_members),
        group.replacement is not None,
        frozenset((each.topic, each.partition) for each in (*group.offsets, *group.uncommitted)),
        group.subscribed_topics,
    )


def member_error(seen: SeenGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return the error of a request that names a member (KIP-345)."""
    if instance_id is not None:
        holders = [
            each for each, member in seen.members.items() if member.instance_id == instance_id
        ]
        if holders and member_id not in holders:
            return ErrorCode.FENCED_INSTANCE_ID
    known = seen.members.get(member_id)
    if known is None or (instance_id is not None and known.instance_id != instance_id):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def heartbeat_error(
    seen: SeenGroup | None, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """Return the error of a Heartbeat."""
    if seen is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if seen.state == DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = member_error(seen, member_id, instance_id)
    if error is ErrorCode.NONE and generation != seen.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if error is ErrorCode.NONE and seen.state == PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error


def commit_refusal(seen: SeenGroup | None, message: OffsetCommitRequest) -> ErrorCode | None:
    """Return the error of an OffsetCommit; None if its records are written."""
    generation = message.generation_id_or_member_epoch
    if seen is None:
        return None if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if seen.state == DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and seen.state == EMPTY:
        return None
    error = member_error(seen, message.member_id, message.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != seen.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if seen.state == COMPLETING else None


def sync_refusal(seen: SeenGroup | None, message: SyncGroupRequest) -> ErrorCode | None:
    """Return the error of a SyncGroup, NONE in a stable group, None if the member waits."""
    error = heartbeat_error(
        seen, message.member_id, message.group_instance_id, message.generation_id
    )
    if seen is None or error not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        return error
    if message.protocol_name not in (None, seen.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is ErrorCode.NONE and seen.state == COMPLETING:
        return None
    return error


def join_refusal(
    seen: SeenGroup | None, message: JoinGroupRequest, version: int
) -> ErrorCode | None:
    """Return the error of a JoinGroup, NONE if it changes nothing, None if it waits."""
    member_id, instance_id = message.member_id, message.group_instance_id
    if seen is None:
        if member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif seen.state == DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif seen.state != EMPTY and not _speaks(seen, message):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not member_id:
        needs_id = instance_id is None and version >= _MEMBER_ID_REQUIRED_VERSION
        return ErrorCode.MEMBER_ID_REQUIRED if needs_id else None
    assert seen is not None, "a group that does not exist has no members"
    if member_id in seen.pending:
        return None if instance_id is None else ErrorCode.INVALID_REQUEST
    error = member_error(seen, member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    asked = tuple((each.name, each.metadata) for each in message.protocols)
    is_same = seen.members[member_id].protocols == asked
    is_quiet = seen.state == COMPLETING or (seen.state == STABLE and seen.leader != member_id)
    return ErrorCode.NONE if is_same and is_quiet else None


def _speaks(seen: SeenGroup, message: JoinGroupRequest) -> bool:
    common = [
        protocol.name
        for protocol in message.protocols
        if all(
            protocol.name in (name for name, _ in member.protocols)
            for member in seen.members.values()
        )
    ]
    return message.protocol_type == seen.protocol_type and bool(common)


def leave_error(seen: SeenGroup | None, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return the error of one member in a LeaveGroup."""
    if seen is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member_id in seen.pending:
        return ErrorCode.NONE
    if not member_id and instance_id is not None:
        is_held = any(each.instance_id == instance_id for each in seen.members.values())
        return ErrorCode.NONE if is_held else ErrorCode.UNKNOWN_MEMBER_ID
    return member_error(seen, member_id, instance_id)


def offset_delete_error(
    seen: SeenGroup | None, partition: tuple[str, int]
) -> tuple[ErrorCode, ErrorCode | None]:
    """Return the error of an OffsetDelete, and the error of its partition.

    The error of the partition is None if the coordinator writes a tombstone of the offset.
    """
    if seen is None:
        return ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE
    if seen.state == DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE
    if seen.state != EMPTY and (seen.topics is None or partition[0] in seen.topics):
        return ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE, None if partition in seen.partitions else ErrorCode.NONE


def delete_group_error(seen: SeenGroup | None) -> ErrorCode | None:
    """Return the error of a DeleteGroups for one group; None if tombstones are written."""
    if seen is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if seen.state == DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return None if seen.state == EMPTY else ErrorCode.NON_EMPTY_GROUP
