"""SyncGroup: the coordinator writes the leader's assignment to the log, then sends it to members.

A generation has only one assignment. If the leader repeats its SyncGroup while its assignment is
being written, the repeated request waits for the first assignment. If the assignment cannot be
written in time, the generation gets no assignment, and all members rejoin.
"""

from __future__ import annotations

from tidelog.core import limits
from tidelog.core.errors import ErrorCode
from tidelog.group.asked import Asked
from tidelog.group.classic import rebalancing, waits
from tidelog.group.classic.classic_group import ClassicGroup, GroupState, classic
from tidelog.group.classic.waits import StoreAssignment
from tidelog.group.records import GroupSnapshot
from tidelog.group.turn import Turn
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(turn: Turn, asked: Asked[SyncGroupRequest]) -> None:
    """Handle a SyncGroup request."""
    group = classic(turn.groups.get(asked.group_id))
    error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _error(group, asked.message)
    if error is not ErrorCode.NONE or group is None:
        turn.reply(asked.ticket, SyncGroupResponse(error_code=error))
        return
    member = group.members[asked.message.member_id]
    rebalancing.synced(turn, group, member)
    if group.state is GroupState.STABLE:
        turn.reply(asked.ticket, rebalancing.assignment_of(group, member))
        turn.touch(group, member.member_id, member.session, member.session_timeout_ms)
        return
    waits.end_sync(turn, member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_ticket = asked.ticket
    if group.is_leader(member.member_id) and group.storing_generation != group.generation_id:
        _store(turn, group, asked.message)


def _error(group: ClassicGroup, message: SyncGroupRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.member_error(message.member_id, message.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if message.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if message.protocol_type not in (
        None,
        group.protocol_type,
    ) or message.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _store(turn: Turn, group: ClassicGroup, message: SyncGroupRequest) -> None:
    assignments = {each.member_id: each.assignment for each in message.assignments}
    size = sum(len(assignments.get(each, b"")) for each in group.members)
    if size > limits.MAX_GROUP_ASSIGNMENT_BYTES:
        assignment_not_stored(turn, group, group.generation_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    former = group.storing_generation
    assert former is None or former < group.generation_id, "a generation is assigned once"
    group.is_stored = True
    group.storing_generation = group.generation_id
    record = group.snapshot(list(group.members.values()), assignments)
    turn.append(group, [record], StoreAssignment(group.generation_id))


def assignment_stored(turn: Turn, group: ClassicGroup, snapshot: GroupSnapshot) -> None:
    """Send members their assignments, which are in the log now.

    If the group has another generation or state by now, the assignment has no effect.
    """
    assert snapshot.generation_id <= group.generation_id, "generations of a group only grow"
    if _is_awaited(group, snapshot.generation_id):
        rebalancing.stable(
            turn, group, {each.member_id: each.assignment for each in snapshot.members}
        )


def assignment_not_stored(
    turn: Turn, group: ClassicGroup, generation_id: int, error: ErrorCode
) -> None:
    """End this generation without an assignment; its members have to rejoin."""
    if _is_awaited(group, generation_id):
        rebalancing.refuse_syncs(turn, group, error)
        rebalancing.prepare(turn, group)


def _is_awaited(group: ClassicGroup, generation_id: int) -> bool:
    return group.state is GroupState.COMPLETING_REBALANCE and group.generation_id == generation_id
