"""Rebalance of a group: prepared while members join, completed by a generation, and synced.

Prepare: every member must rejoin, until all have or the rebalance timeout is over; the first
rebalance of an empty group waits for newcomers instead. Complete: members that did not join are
dropped (static members stay). A leader and a protocol are chosen, the generation rises, and joins
are answered. Sync: each member asks for its assignment; members that do not ask within the
rebalance timeout are dropped.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.core.errors import ErrorCode
from tidelog.group.group import Group, GroupState, InitialDelay
from tidelog.group.member import Member
from tidelog.group.turn import StoreEmpty, Turn
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse


def prepare(turn: Turn, group: Group) -> None:
    """Begin a rebalance of a group that is empty, stable, or waits for its assignment."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        refuse_syncs(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    turn.cancel_sync_timer(group)
    was_empty = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE, turn.now.wall_ms)
    if was_empty:
        delay_ms = turn.settings.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(max(group.rebalance_timeout_ms - delay_ms, 0))
        turn.set_join_timer(group, delay_ms)
    elif group.all_joined:
        complete(turn, group)
    else:
        turn.set_join_timer(group, group.rebalance_timeout_ms)


def prepare_or_complete(turn: Turn, group: Group) -> None:
    """Begin a rebalance after a member joined, or complete the rebalance if all have joined."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_all_joined(turn, group)
    else:
        prepare(turn, group)


def member_gone(turn: Turn, group: Group) -> None:
    """Begin a rebalance after members were removed, or stop waiting for their joins."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare(turn, group)
    else:
        complete_if_all_joined(turn, group)


def complete_if_all_joined(turn: Turn, group: Group) -> None:
    """Complete the rebalance if no member is waited for; the initial delay always runs in full."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_delay is None
        and group.all_joined
    ):
        complete(turn, group)


def join_timer_fired(turn: Turn, group: Group) -> None:
    """End the time to join; the first rebalance is extended while members arrive."""
    group.join_deadline_ms = None
    delay = group.initial_delay
    if delay is not None and delay.has_newcomer and delay.remaining_ms:
        delay_ms = min(turn.settings.initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(delay.remaining_ms - delay_ms)
        turn.set_join_timer(group, delay_ms)
    else:
        complete(turn, group)


def note_newcomer(group: Group) -> None:
    """Note a member that joins during the initial delay, which may then be extended.

    The initial delay of a group that was empty for a while is not extended.
    """
    if group.initial_delay is not None and group.generation_id == 0:
        group.initial_delay = replace(group.initial_delay, has_newcomer=True)


def complete(turn: Turn, group: Group) -> None:
    """End the preparation with a new generation of the members that joined."""
    turn.cancel_join_timer(group)
    group.initial_delay = None
    for member in list(group.members.values()):
        if member.join_ticket is None and member.instance_id is None:
            turn.remove_member(group, member)
    if group.has_members and not group.elect_leader():
        # Only static members are left, and none of them rejoined: their session timers decide.
        turn.set_join_timer(group, group.rebalance_timeout_ms)
        return
    group.generation_id += 1
    if group.has_members:
        group.protocol_name = group.select_protocol()
        group.move_to(GroupState.COMPLETING_REBALANCE, turn.now.wall_ms)
    else:
        group.protocol_name = None
        group.move_to(GroupState.EMPTY, turn.now.wall_ms)
        group.is_stored = True
        turn.append(group, [group.snapshot([], {})], StoreEmpty())
    group.read_subscriptions(turn.settings.subscription_topics)
    if group.has_members:
        _answer_joins(turn, group)


def _answer_joins(turn: Turn, group: Group) -> None:
    for member in group.members.values():
        member.assignment = b""
        turn.end_join(group, member, current_generation(group, member))
        turn.touch(group, member.member_id, member.session, member.session_timeout_ms)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    turn.set_sync_timer(group, group.rebalance_timeout_ms)


def current_generation(group: Group, member: Member) -> JoinGroupResponse:
    """Return the join answer for the current generation.

    The leader receives the members only while it has to make the assignment.
    """
    names_members = group.state is GroupState.COMPLETING_REBALANCE and group.is_leader(
        member.member_id
    )
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=group.joined_members() if names_members else [],
    )


def sync_timer_fired(turn: Turn, group: Group) -> None:
    """Drop members that have not asked for their assignment by now."""
    group.sync_deadline_ms = None
    for member_id in list(group.pending_sync):
        turn.remove_member(group, group.members[member_id])
    prepare(turn, group)


def synced(turn: Turn, group: Group, member: Member) -> None:
    """Note that a member asked for its assignment."""
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        turn.cancel_sync_timer(group)


def refuse_syncs(turn: Turn, group: Group, error: ErrorCode) -> None:
    """Answer waiting syncs with an error, as this generation gets no assignment."""
    for member in group.members.values():
        member.assignment = b""
        if turn.end_sync(member, SyncGroupResponse(error_code=error)):
            turn.touch(group, member.member_id, member.session, member.session_timeout_ms)


def stable(turn: Turn, group: Group, assignments: dict[str, bytes]) -> None:
    """Distribute the assignment, which is in the log now."""
    group.move_to(GroupState.STABLE, turn.now.wall_ms)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if turn.end_sync(member, assignment_of(group, member)):
            turn.touch(group, member.member_id, member.session, member.session_timeout_ms)


def assignment_of(group: Group, member: Member) -> SyncGroupResponse:
    """Return the sync answer of a member of a stable group."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
