"""A rebalance: it is prepared while members join, completed by a generation, and synced.

Prepare: everybody is to join again, until all have or the rebalance timeout is over; the first
one of an empty group waits for newcomers instead. Complete: who did not join is dropped (static
members stay), a leader and a protocol are chosen, the generation rises, joins are answered. Then
each member asks for its assignment; those that do not within the rebalance timeout are dropped.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.core.errors import ErrorCode
from tidelog.group.answers import JoinAnswer, SyncAnswer
from tidelog.group.group import Group, GroupState, InitialDelay
from tidelog.group.member import Member
from tidelog.group.turn import StoreEmpty, Turn


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
    """Somebody joined: begin a rebalance, or end the one under way if all are there."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_all_joined(turn, group)
    else:
        prepare(turn, group)


def member_gone(turn: Turn, group: Group) -> None:
    """Members were removed: the others must share anew, or wait for one less."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare(turn, group)
    else:
        complete_if_all_joined(turn, group)


def complete_if_all_joined(turn: Turn, group: Group) -> None:
    """End the preparation if nobody is waited for; the first one lasts as long as it is set."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_delay is None
        and group.all_joined
    ):
        complete(turn, group)


def join_timer_fired(turn: Turn, group: Group) -> None:
    """The time to join is over; the first rebalance is extended while members arrive."""
    group.join_deadline_ms = None
    delay = group.initial_delay
    if delay is not None and delay.has_newcomer and delay.remaining_ms:
        delay_ms = min(turn.settings.initial_rebalance_delay_ms, delay.remaining_ms)
        group.initial_delay = InitialDelay(delay.remaining_ms - delay_ms)
        turn.set_join_timer(group, delay_ms)
    else:
        complete(turn, group)


def note_newcomer(group: Group) -> None:
    """Somebody joins during the first rebalance: it may be extended. That of a group which was
    empty for a while is not."""
    if group.initial_delay is not None and group.generation_id == 0:
        group.initial_delay = replace(group.initial_delay, has_newcomer=True)


def complete(turn: Turn, group: Group) -> None:
    """End the preparation: a new generation of those who joined."""
    turn.cancel_join_timer(group)
    group.initial_delay = None
    for member in list(group.members.values()):
        if member.join_ticket is None and member.instance_id is None:
            turn.remove_member(group, member)
    if group.has_members and not group.elect_leader():
        # Only static members are left, and none of them is there: their sessions will tell.
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


def current_generation(group: Group, member: Member) -> JoinAnswer:
    """What JoinGroup says of the generation; the leader learns of the members while it is to
    make the assignment."""
    tells_all = group.state is GroupState.COMPLETING_REBALANCE and group.is_leader(member.member_id)
    return JoinAnswer(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        members=group.joined_members() if tells_all else (),
    )


def sync_timer_fired(turn: Turn, group: Group) -> None:
    """Who has not asked for its assignment by now is dropped."""
    group.sync_deadline_ms = None
    for member_id in list(group.pending_sync):
        turn.remove_member(group, group.members[member_id])
    prepare(turn, group)


def synced(turn: Turn, group: Group, member: Member) -> None:
    """A member asked for its assignment."""
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        turn.cancel_sync_timer(group)


def refuse_syncs(turn: Turn, group: Group, error: ErrorCode) -> None:
    """There will be no assignment in this generation."""
    for member in group.members.values():
        member.assignment = b""
        if turn.end_sync(member, SyncAnswer(error)):
            turn.touch(group, member.member_id, member.session, member.session_timeout_ms)


def stable(turn: Turn, group: Group, assignments: dict[str, bytes]) -> None:
    """The assignment is in the log: hand it out."""
    group.move_to(GroupState.STABLE, turn.now.wall_ms)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if turn.end_sync(member, assignment_of(group, member)):
            turn.touch(group, member.member_id, member.session, member.session_timeout_ms)


def assignment_of(group: Group, member: Member) -> SyncAnswer:
    """What SyncGroup says to a member of a stable group."""
    return SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
