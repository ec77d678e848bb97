"""Rebalance of a group: members join, the coordinator begins a generation, and members sync.

First the coordinator waits until all members have rejoined or the rebalance timeout is over. In the
first rebalance of an empty group, the coordinator waits for new members instead
(`group.initial.rebalance.delay.ms`). Then the coordinator removes members that did not join (static
members stay), chooses a leader and a protocol, raises the generation, and answers the joins. In the
new generation, each member requests its assignment by SyncGroup; members that do not sync within
the rebalance timeout are removed.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.core.errors import ErrorCode
from tidelog.group.classic import waits
from tidelog.group.classic.classic_group import ClassicGroup, GroupState, InitialDelay
from tidelog.group.classic.member import Member
from tidelog.group.classic.waits import StoreEmpty
from tidelog.group.turn import Turn
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse


def prepare(turn: Turn, group: ClassicGroup) -> None:
    """Begin a rebalance of a group in state Empty, Stable or CompletingRebalance."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        refuse_syncs(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    waits.cancel_sync_timer(turn, group)
    was_empty = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE, turn.now.wall_ms)
    if was_empty:
        delay_ms = turn.settings.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(max(group.rebalance_timeout_ms - delay_ms, 0))
        waits.set_join_timer(turn, group, delay_ms)
    elif group.all_joined:
        complete(turn, group)
    else:
        waits.set_join_timer(turn, group, group.rebalance_timeout_ms)


def prepare_or_complete(turn: Turn, group: ClassicGroup) -> None:
    """After a member joined, begin a rebalance, or complete the running rebalance if all joined."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_all_joined(turn, group)
    else:
        prepare(turn, group)


def member_gone(turn: Turn, group: ClassicGroup) -> None:
    """After members were removed, begin a rebalance, or complete the running rebalance."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare(turn, group)
    else:
        complete_if_all_joined(turn, group)


def complete_if_all_joined(turn: Turn, group: ClassicGroup) -> None:
    """Complete the rebalance if all members have joined and no initial delay runs."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_delay is None
        and group.all_joined
    ):
        complete(turn, group)


def join_timer_fired(turn: Turn, group: ClassicGroup) -> None:
    """When the join timer fires, complete the rebalance, or extend the initial delay."""
    group.join_deadline_ms = None
    delay = group.initial_delay
    if delay is not None and delay.has_newcomer and delay.remaining_ms:
        delay_ms = min(turn.settings.initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(delay.remaining_ms - delay_ms)
        waits.set_join_timer(turn, group, delay_ms)
    else:
        complete(turn, group)


def note_newcomer(group: ClassicGroup) -> None:
    """Record that a member joined during the initial delay, which may then be extended.

    Only the delay of a group's very first rebalance is extended, as in Kafka.
    """
    if group.initial_delay is not None and group.generation_id == 0:
        group.initial_delay = replace(group.initial_delay, has_newcomer=True)


def complete(turn: Turn, group: ClassicGroup) -> None:
    """Complete a rebalance: begin a new generation of the members that joined."""
    waits.cancel_join_timer(turn, group)
    group.initial_delay = None
    for member in list(group.members.values()):
        if member.join_ticket is None and member.instance_id is None:
            waits.remove_member(turn, group, member)
    if group.has_members and not group.elect_leader():
        # Only static members are left, and none of them has rejoined. Each of them leaves the group
        # when its session times out.
        waits.set_join_timer(turn, group, group.rebalance_timeout_ms)
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


def _answer_joins(turn: Turn, group: ClassicGroup) -> None:
    for member in group.members.values():
        member.assignment = b""
        waits.end_join(turn, group, member, current_generation(group, member))
        turn.touch(group, member.member_id, member.session, member.session_timeout_ms)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    waits.set_sync_timer(turn, group, group.rebalance_timeout_ms)


def current_generation(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """Return the JoinGroup response that gives a member the current generation.

    The leader gets the list of members only while it has to compute the assignment.
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


def sync_timer_fired(turn: Turn, group: ClassicGroup) -> None:
    """Remove members that have not sent a SyncGroup in time."""
    group.sync_deadline_ms = None
    for member_id in list(group.pending_sync):
        waits.remove_member(turn, group, group.members[member_id])
    prepare(turn, group)


def synced(turn: Turn, group: ClassicGroup, member: Member) -> None:
    """Record that a member has sent a SyncGroup."""
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        waits.cancel_sync_timer(turn, group)


def refuse_syncs(turn: Turn, group: ClassicGroup, error: ErrorCode) -> None:
    """Answer waiting SyncGroups with an error, because this generation gets no assignment."""
    for member in group.members.values():
        member.assignment = b""
        if waits.end_sync(turn, member, SyncGroupResponse(error_code=error)):
            turn.touch(group, member.member_id, member.session, member.session_timeout_ms)


def stable(turn: Turn, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
    """Make the group stable; send the assignments, which are in the log now, to the members."""
    group.move_to(GroupState.STABLE, turn.now.wall_ms)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if waits.end_sync(turn, member, assignment_of(group, member)):
            turn.touch(group, member.member_id, member.session, member.session_timeout_ms)


def assignment_of(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """Return the SyncGroup response to a member of a stable group."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
