"""Heartbeat, LeaveGroup, and sessions that time out.

A heartbeat moves a deadline. The session of a member that waits in a join or sync does not time
out. Such a member cannot send heartbeats meanwhile, and the rebalance has its own timeouts. Only a
new member can time out while it waits, because the coordinator cannot know whether its client still
exists.
"""

from __future__ import annotations

from tidelog.core.errors import ErrorCode
from tidelog.group import rebalancing
from tidelog.group.asked import NO_MEMBER, Asked
from tidelog.group.group import Group, GroupState
from tidelog.group.turn import Turn
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


def heartbeat(turn: Turn, asked: Asked[HeartbeatRequest]) -> None:
    """Decide a Heartbeat request."""
    group, message = turn.groups.get(asked.group_id), asked.message
    if group is None:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    elif group.state is GroupState.DEAD:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    else:
        error = group.member_error(message.member_id, message.group_instance_id)
        if error is ErrorCode.NONE and message.generation_id != group.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        elif error is ErrorCode.NONE:
            member = group.members[message.member_id]
            turn.touch(group, member.member_id, member.session, member.session_timeout_ms)
            if group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
    turn.reply(asked.ticket, HeartbeatResponse(error_code=error))


def leave(turn: Turn, asked: Asked[LeaveGroupRequest]) -> None:
    """Decide a LeaveGroup request: each member by itself, then one rebalance for all of them."""
    group = turn.groups.get(asked.group_id)
    if group is not None and group.state is GroupState.DEAD:
        turn.reply(asked.ticket, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    member_count = 0 if group is None else len(group.members)
    results = [
        MemberResponse(
            identity.member_id,
            identity.group_instance_id,
            ErrorCode.UNKNOWN_MEMBER_ID if group is None else _leave(turn, group, identity),
        )
        for identity in asked.message.members
    ]
    turn.reply(asked.ticket, LeaveGroupResponse(members=results))
    if group is None:
        return
    if len(group.members) < member_count:
        rebalancing.member_gone(turn, group)
    else:
        rebalancing.complete_if_all_joined(turn, group)


def _leave(turn: Turn, group: Group, identity: MemberIdentity) -> ErrorCode:
    member_id = identity.member_id
    session = group.pending_members.pop(member_id, None)
    if session is not None:
        turn.disarm(group, member_id, session)
        return ErrorCode.NONE
    if member_id == NO_MEMBER:
        # An administrator names the instance alone.
        member_id = group.static_ids.get(identity.group_instance_id or "", NO_MEMBER)
    error = group.member_error(member_id, identity.group_instance_id)
    if error is ErrorCode.NONE:
        turn.remove_member(group, group.members[member_id])
    return error


def session_timer_fired(turn: Turn, group: Group, member_id: str, deadline_ms: int) -> None:
    """Handle the session timer of a member, or of a client that was only given an id.

    The coordinator may have heard of it since the timer was set.
    """
    member = group.members.get(member_id)
    session = group.pending_members.get(member_id) if member is None else member.session
    if session is None or session.armed_ms != deadline_ms:
        return
    session.armed_ms = None
    if session.deadline_ms > turn.now.monotonic_ms:
        turn.arm(group, member_id, session)
    elif member is None:
        del group.pending_members[member_id]
        rebalancing.complete_if_all_joined(turn, group)
    elif member.is_new or (member.join_ticket is None and member.sync_ticket is None):
        turn.remove_member(group, member)
        rebalancing.member_gone(turn, group)
