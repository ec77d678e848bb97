"""Heartbeat, LeaveGroup, session timeouts, and the begin and end of the coordinator's leadership.

A heartbeat extends the member's session. The session does not time out while a JoinGroup or
SyncGroup of the member waits, because the member cannot send heartbeats then, and the rebalance has
its own timeouts. Only a new member can time out while it waits, because its client may be gone
without a sign.
"""

from __future__ import annotations

from tidelog.core.errors import ErrorCode
from tidelog.group.asked import NO_MEMBER, Asked, join_error
from tidelog.group.classic import rebalancing, waits
from tidelog.group.classic.classic_group import ClassicGroup, GroupState, classic
from tidelog.group.group import Group
from tidelog.group.timers import TimerKind, TimerName
from tidelog.group.turn import Turn
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.wire.messages.sync_group import SyncGroupResponse


def heartbeat(turn: Turn, asked: Asked[HeartbeatRequest]) -> None:
    """Handle a Heartbeat request."""
    group, message = classic(turn.groups.get(asked.group_id)), asked.message
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
    """Handle a LeaveGroup request: remove its members, then begin one rebalance for all of them."""
    group = classic(turn.groups.get(asked.group_id))
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


def _leave(turn: Turn, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
    member_id = identity.member_id
    session = group.pending_members.pop(member_id, None)
    if session is not None:
        turn.disarm(group, member_id, session)
        return ErrorCode.NONE
    if member_id == NO_MEMBER:
        # A request of an administrator has the group instance id, but no member id.
        member_id = group.static_ids.get(identity.group_instance_id or "", NO_MEMBER)
    error = group.member_error(member_id, identity.group_instance_id)
    if error is ErrorCode.NONE:
        waits.remove_member(turn, group, group.members[member_id])
    return error


def loaded(turn: Turn, group: Group) -> None:
    """Start the members' sessions; begin a rebalance if the group exceeds `group.max.size`."""
    assert isinstance(group, ClassicGroup)
    group.read_subscriptions(turn.settings.subscription_topics)
    for member in group.members.values():
        turn.touch(group, member.member_id, member.session, member.session_timeout_ms)
    if len(group.members) > turn.settings.max_size:
        rebalancing.prepare(turn, group)


def moved_away(turn: Turn, group: Group) -> None:
    """Respond NOT_COORDINATOR to waiting requests, and cancel the group's timers."""
    assert isinstance(group, ClassicGroup)
    error = ErrorCode.NOT_COORDINATOR
    for member in group.members.values():
        waits.end_join(turn, group, member, join_error(error))
        waits.end_sync(turn, member, SyncGroupResponse(error_code=error))
        turn.disarm(group, member.member_id, member.session)
    for member_id, session in group.pending_members.items():
        turn.disarm(group, member_id, session)
    for asked in group.waiting_static.values():
        turn.reply(asked.ticket, join_error(error))
    waits.cancel_join_timer(turn, group)
    waits.cancel_sync_timer(turn, group)


def timer_fired(turn: Turn, group: Group, name: TimerName, deadline_ms: int) -> None:
    """Handle a timer that was set to `deadline_ms`; ignore a timer that has been set again."""
    assert isinstance(group, ClassicGroup)
    match name.kind:
        case TimerKind.SESSION:
            session_timer_fired(turn, group, name.member_id, deadline_ms)
        case TimerKind.JOIN if group.join_deadline_ms == deadline_ms:
            rebalancing.join_timer_fired(turn, group)
        case TimerKind.SYNC if group.sync_deadline_ms == deadline_ms:
            rebalancing.sync_timer_fired(turn, group)
        case _:
            pass


def session_timer_fired(turn: Turn, group: ClassicGroup, member_id: str, deadline_ms: int) -> None:
    """Handle the session timer of a member, or of a client that has only a member id.

    The member may have sent a heartbeat since the timer was set.
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
        waits.remove_member(turn, group, member)
        rebalancing.member_gone(turn, group)
