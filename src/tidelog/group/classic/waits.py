"""Requests in which members wait, and the timers that end these waits.

A member's JoinGroup request waits until the rebalance is complete, then its SyncGroup request waits
until the assignment is in the log. `StoreAssignment`, `StoreStaticMember` and `StoreEmpty` are the
purposes for which classic groups append records.
"""

from __future__ import annotations

from tidelog.core.coordinator_shard import CancelTimer, SetTimer
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.group.asked import Asked, join_error
from tidelog.group.classic.classic_group import ClassicGroup
from tidelog.group.classic.member import Member
from tidelog.group.timers import TimerKind, TimerName
from tidelog.group.turn import Turn
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse


@dataclass(frozen=True, slots=True)
class StoreAssignment:
    """A leader's SyncGroup whose assignment is appended to the log."""

    generation_id: int


@dataclass(frozen=True, slots=True)
class StoreStaticMember:
    """A static member's JoinGroup whose new member id is appended to the log."""

    asked: Asked[JoinGroupRequest]
    generation_id: int
    old_member_id: str
    new_member_id: str


@dataclass(frozen=True, slots=True)
class StoreEmpty:
    """An append of an empty group's record after the last member left; no request waits for the
    append.
    """


def await_join(turn: Turn, group: ClassicGroup, member: Member, ticket: int) -> None:
    """Let a member's JoinGroup wait; answer the member's earlier JoinGroup, if one waits."""
    error = ErrorCode.REBALANCE_IN_PROGRESS
    end_join(turn, group, member, join_error(error, member.member_id))
    member.join_ticket = ticket
    group.awaiting_join += 1


def end_join(turn: Turn, group: ClassicGroup, member: Member, answer: JoinGroupResponse) -> None:
    """Answer the member's waiting JoinGroup, if there is one."""
    if member.join_ticket is not None:
        turn.reply(member.join_ticket, answer)
        member.join_ticket = None
        group.awaiting_join -= 1
        assert group.awaiting_join >= 0, "each member that waits in a join is counted once"


def end_sync(turn: Turn, member: Member, answer: SyncGroupResponse) -> bool:
    """Answer the member's waiting SyncGroup, if there is one; return whether there was one."""
    if member.sync_ticket is None:
        return False
    turn.reply(member.sync_ticket, answer)
    member.sync_ticket = None
    return True


def remove_member(
    turn: Turn, group: ClassicGroup, member: Member, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID
) -> None:
    """Remove a member from its group; answer its waiting requests with `error`."""
    end_join(turn, group, member, join_error(error))
    end_sync(turn, member, SyncGroupResponse(error_code=error))
    turn.disarm(group, member.member_id, member.session)
    group.remove(member)


def set_join_timer(turn: Turn, group: ClassicGroup, delay_ms: int) -> None:
    """Set the timer that ends the wait for members to join."""
    group.join_deadline_ms = turn.now.monotonic_ms + delay_ms
    name = TimerName(TimerKind.JOIN, group.group_id)
    turn.effects.append(SetTimer(name, group.join_deadline_ms))


def cancel_join_timer(turn: Turn, group: ClassicGroup) -> None:
    """Cancel the join timer, because the group no longer waits for members to join."""
    if group.join_deadline_ms is not None:
        group.join_deadline_ms = None
        turn.effects.append(CancelTimer(TimerName(TimerKind.JOIN, group.group_id)))


def set_sync_timer(turn: Turn, group: ClassicGroup, delay_ms: int) -> None:
    """Set the timer that ends the wait for members to request their assignments."""
    group.sync_deadline_ms = turn.now.monotonic_ms + delay_ms
    name = TimerName(TimerKind.SYNC, group.group_id)
    turn.effects.append(SetTimer(name, group.sync_deadline_ms))


def cancel_sync_timer(turn: Turn, group: ClassicGroup) -> None:
    """Cancel the sync timer, because the group no longer waits for SyncGroup requests."""
    if group.sync_deadline_ms is not None:
        group.sync_deadline_ms = None
        turn.effects.append(CancelTimer(TimerName(TimerKind.SYNC, group.group_id)))
