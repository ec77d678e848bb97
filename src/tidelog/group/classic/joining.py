"""JoinGroup: which clients may join, with which member id, and whether a rebalance begins.

A new member first gets a member id (KIP-394). A static member that returns gets a new member id and
keeps its assignment (KIP-345). If the returning static member is the leader, it need not compute an
assignment (KIP-814). `group.max.size` limits the number of members. The return of a static member
to a stable group changes the group's record. While that record is being written, other joins that
would change the record wait, because no record may hold outdated member ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.core import limits
from tidelog.core.errors import ErrorCode
from tidelog.group.asked import (
    MEMBER_ID_REQUIRED_VERSION,
    NO_MEMBER,
    SKIP_ASSIGNMENT_VERSION,
    Asked,
    join_error,
)
from tidelog.group.classic import rebalancing, waits
from tidelog.group.classic.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    GroupState,
    StaticReplacement,
    classic,
)
from tidelog.group.classic.member import Member
from tidelog.group.classic.waits import StoreStaticMember
from tidelog.group.sessions import MemberSession
from tidelog.group.settings import GroupSettings
from tidelog.group.turn import Turn
from tidelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)


def join(turn: Turn, asked: Asked[JoinGroupRequest]) -> None:
    """Handle a JoinGroup request."""
    error = _request_error(turn.settings, asked.message)
    group = classic(turn.groups.get(asked.group_id))
    if error is ErrorCode.NONE and group is None:
        if asked.message.member_id != NO_MEMBER:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif len(turn.groups) >= turn.settings.max_groups:
            error = ErrorCode.POLICY_VIOLATION
        else:
            group = ClassicGroup(asked.group_id, turn.now.wall_ms)
            turn.groups[asked.group_id] = group
    if error is not ErrorCode.NONE or group is None:
        turn.reply(asked.ticket, join_error(error, asked.message.member_id))
    else:
        join_group(turn, group, asked)


def _request_error(settings: GroupSettings, message: JoinGroupRequest) -> ErrorCode:
    least_ms, most_ms = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not least_ms <= message.session_timeout_ms <= most_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if message.rebalance_timeout_ms < 0:
        return ErrorCode.INVALID_REQUEST
    instance_id = message.group_instance_id
    if instance_id is not None and not 0 < len(instance_id) <= limits.MAX_INSTANCE_ID_CHARS:
        return ErrorCode.INVALID_REQUEST
    names = dict.fromkeys(protocol.name for protocol in message.protocols)
    if len(names) != len(message.protocols):
        return ErrorCode.INVALID_REQUEST
    size = sum(len(protocol.metadata) for protocol in message.protocols)
    if len(names) > limits.MAX_GROUP_PROTOCOLS or size > limits.MAX_MEMBER_METADATA_BYTES:
        return ErrorCode.POLICY_VIOLATION
    return ErrorCode.NONE


def join_group(turn: Turn, group: ClassicGroup, asked: Asked[JoinGroupRequest]) -> None:
    """Handle a JoinGroup request on an existing group."""
    message, member_id = asked.message, asked.message.member_id
    if group.state is GroupState.DEAD:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif not _is_accepted(turn, group, member_id):
        _shed(turn, group, asked)
        return
    elif not group.supports(message.protocol_type, message.protocols):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif member_id == NO_MEMBER:
        _join_unknown(turn, group, asked)
        return
    elif member_id in group.pending_members:
        _join_pending(turn, group, asked)
        return
    else:
        error = group.member_error(member_id, message.group_instance_id)
        if error is ErrorCode.NONE:
            _join_known(turn, group, group.members[member_id], asked)
            return
    turn.reply(asked.ticket, join_error(error, member_id))


def _is_accepted(turn: Turn, group: ClassicGroup, member_id: str) -> bool:
    """Return whether `group.max.size` leaves room for a member.

    While a rebalance is prepared, only members that have rejoined count. If `group.max.size` was
    lowered, the members that rejoin last are thus rejected.
    """
    most = turn.settings.max_size
    member = group.members.get(member_id)
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.join_ticket is not None
            return is_waiting or group.awaiting_join < most
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member is not None or len(group.members) < most
        case _:
            return True


def _shed(turn: Turn, group: ClassicGroup, asked: Asked[JoinGroupRequest]) -> None:
    turn.reply(asked.ticket, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
    member = group.members.get(asked.message.member_id)
    session = group.pending_members.pop(asked.message.member_id, None)
    if member is not None:
        waits.remove_member(turn, group, member)
    if session is not None:
        turn.disarm(group, asked.message.member_id, session)
    rebalancing.complete_if_all_joined(turn, group)


# Joins of clients without a member id, or with a member id under which they have not joined yet.


def _join_unknown(turn: Turn, group: ClassicGroup, asked: Asked[JoinGroupRequest]) -> None:
    instance_id = asked.message.group_instance_id
    if instance_id is None:
        prefix = asked.client_id[: limits.MAX_CLIENT_ID_CHARS_IN_MEMBER_ID]
    else:
        prefix = instance_id
    member_id = f"{prefix}-{asked.uuid}"
    former = group.waiting_static.pop(instance_id or "", None)
    if former is not None:
        turn.reply(former.ticket, join_error(ErrorCode.FENCED_INSTANCE_ID))
    if instance_id is not None and instance_id in group.static_ids:
        _return_static(turn, group, asked, member_id)
    elif turn.member_count >= turn.settings.max_members:
        turn.reply(asked.ticket, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif instance_id is None and asked.version >= MEMBER_ID_REQUIRED_VERSION:
        session = group.pending_members[member_id] = MemberSession()
        turn.touch(group, member_id, session, asked.message.session_timeout_ms)
        turn.reply(asked.ticket, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(turn, group, asked, member_id, MemberSession())


def _join_pending(turn: Turn, group: ClassicGroup, asked: Asked[JoinGroupRequest]) -> None:
    if asked.message.group_instance_id is not None:
        # Only dynamic members get their member id before they join.
        turn.reply(asked.ticket, join_error(ErrorCode.INVALID_REQUEST, asked.message.member_id))
        return
    session = group.pending_members.pop(asked.message.member_id)
    _add(turn, group, asked, asked.message.member_id, session)


def _add(
    turn: Turn,
    group: ClassicGroup,
    asked: Asked[JoinGroupRequest],
    member_id: str,
    session: MemberSession,
) -> None:
    member = Member.joining(asked, member_id, session)
    member.is_new = True
    if not group.has_members:
        group.protocol_type = asked.message.protocol_type
    rebalancing.note_newcomer(group)
    group.add(member)
    waits.await_join(turn, group, member, asked.ticket)
    turn.touch(group, member_id, session, turn.settings.new_member_join_timeout_ms)
    rebalancing.prepare_or_complete(turn, group)


# Members.


def _join_known(
    turn: Turn, group: ClassicGroup, member: Member, asked: Asked[JoinGroupRequest]
) -> None:
    is_same = member.protocols == asked.message.protocols
    if group.state is GroupState.STABLE:
        # A rejoin of the leader always begins a rebalance, because the leader may have noticed a
        # change that its metadata does not show, such as new partitions of a topic.
        rejoins = group.is_leader(member.member_id) or not is_same
    else:
        rejoins = group.state is GroupState.PREPARING_REBALANCE or not is_same
    if not rejoins:
        turn.reply(asked.ticket, rebalancing.current_generation(group, member))
        return
    _respeak(group, member, asked)
    waits.await_join(turn, group, member, asked.ticket)
    rebalancing.prepare_or_complete(turn, group)


def _respeak(group: ClassicGroup, member: Member, asked: Asked[JoinGroupRequest]) -> None:
    group.respeak(member, asked.message.protocols)
    member.session_timeout_ms = asked.message.session_timeout_ms
    member.rebalance_timeout_ms = asked.message.rebalance_timeout_ms


# Functions for static members that return without their member id.


def _return_static(
    turn: Turn, group: ClassicGroup, asked: Asked[JoinGroupRequest], member_id: str
) -> None:
    if group.state is GroupState.STABLE and group.replacement is not None:
        _wait_for_replacement(turn, group, group.replacement, asked)
        return
    old = _static_member(group, asked)
    if group.state is GroupState.STABLE and _changes_nothing(
        turn, group, old, asked.message.protocols
    ):
        _store_replacement(turn, group, old, asked, member_id)
        return
    member = replace_static(turn, group, old, asked, member_id)
    member.is_new = True
    waits.await_join(turn, group, member, asked.ticket)
    turn.touch(group, member_id, member.session, turn.settings.new_member_join_timeout_ms)
    rebalancing.prepare_or_complete(turn, group)


def _static_member(group: ClassicGroup, asked: Asked[JoinGroupRequest]) -> Member:
    assert asked.message.group_instance_id is not None
    return group.members[group.static_ids[asked.message.group_instance_id]]


def _wait_for_replacement(
    turn: Turn, group: ClassicGroup, under_way: StaticReplacement, asked: Asked[JoinGroupRequest]
) -> None:
    if under_way.is_overdue:
        turn.reply(asked.ticket, join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    assert asked.message.group_instance_id is not None
    group.waiting_static[asked.message.group_instance_id] = asked


def _changes_nothing(
    turn: Turn, group: ClassicGroup, old: Member, protocols: Sequence[JoinGroupRequestProtocol]
) -> bool:
    """Return whether a returning static member can keep its assignment without a rebalance.

    The member keeps the assignment if neither the group's protocol nor the member's subscribed
    topics change.
    """
    if group.select_protocol(old.member_id, protocols) != group.protocol_name:
        return False
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return True
    topics_of = turn.settings.subscription_topics
    new = next(each.metadata for each in protocols if each.name == group.protocol_name)
    before, after = topics_of(old.metadata(group.protocol_name)), topics_of(new)
    return before is None or after is None or sorted(before) == sorted(after)


def _store_replacement(
    turn: Turn, group: ClassicGroup, old: Member, asked: Asked[JoinGroupRequest], member_id: str
) -> None:
    """Append the group's record, in which `member_id` replaces the id of the member `old`.

    The group in memory keeps the old id until the record is committed.
    """
    members = list(group.members.values())
    assignments = {member.member_id: member.assignment for member in members}
    members[members.index(old)] = Member.joining(asked, member_id, MemberSession())
    assignments[member_id] = old.assignment
    record = group.snapshot(members, assignments)
    if group.is_leader(old.member_id):
        assert record.value is not None
        record = record._replace(value=replace(record.value, leader_id=member_id))
    purpose = StoreStaticMember(asked, group.generation_id, old.member_id, member_id)
    group.replacement = StaticReplacement(turn.append(group, [record], purpose))


def replace_static(
    turn: Turn, group: ClassicGroup, old: Member, asked: Asked[JoinGroupRequest], member_id: str
) -> Member:
    """Give a static member a new member id; fence clients that use the old id (KIP-345)."""
    leads = group.is_leader(old.member_id)
    place = list(group.members)
    waits.remove_member(turn, group, old, ErrorCode.FENCED_INSTANCE_ID)
    member = Member.joining(asked, member_id, MemberSession())
    member.assignment = old.assignment
    group.add(member)
    place[place.index(old.member_id)] = member_id
    group.members = {each: group.members[each] for each in place}
    if leads:
        group.leader_id = member_id
    return member


def static_member_stored(
    turn: Turn, group: ClassicGroup, purpose: StoreStaticMember, is_overdue: bool
) -> None:
    """Complete a static member's join after its new id is in the log.

    If the group changed while the record was being written, the coordinator handles the join once
    more. If the static member joined again in that time, the later join fences this join.
    """
    asked = purpose.asked
    assert asked.message.group_instance_id is not None
    assert purpose.generation_id <= group.generation_id, "generations of a group only grow"
    known = group.static_ids.get(asked.message.group_instance_id, purpose.old_member_id)
    group.replacement = None
    if group.state is GroupState.STABLE and group.generation_id == purpose.generation_id:
        old = group.members[purpose.old_member_id]
        leader_id = group.leader_id
        was_pending = purpose.old_member_id in group.pending_sync
        member = replace_static(turn, group, old, asked, purpose.new_member_id)
        if was_pending:
            group.pending_sync[member.member_id] = None
        turn.touch(group, member.member_id, member.session, member.session_timeout_ms)
        if not is_overdue:
            turn.reply(asked.ticket, _returned(group, member, asked.version, leader_id or ""))
    elif known != purpose.old_member_id and not is_overdue:
        turn.reply(asked.ticket, join_error(ErrorCode.FENCED_INSTANCE_ID))
    elif not is_overdue:
        join_group(turn, group, asked)
    _next_static(turn, group)


def _returned(
    group: ClassicGroup, member: Member, version: int, former_leader_id: str
) -> JoinGroupResponse:
    """Return the JoinGroup response to a static member that returned under a new member id.

    A returning leader must not compute an assignment, because no member waits for one. From version
    9 on, `skip_assignment` of the response forbids this computation. Below version 9, the response
    names the leader's old member id as the leader, so that the client does not take itself for the
    leader.
    """
    answer = rebalancing.current_generation(group, member)
    if version < SKIP_ASSIGNMENT_VERSION:
        return replace(answer, leader=former_leader_id)
    if group.is_leader(member.member_id):
        return replace(answer, skip_assignment=True, members=group.joined_members())
    return answer


def static_member_not_stored(
    turn: Turn, group: ClassicGroup, purpose: StoreStaticMember, error: ErrorCode, is_overdue: bool
) -> None:
    """Keep the old id of a static member, because its new id could not be written."""
    group.replacement = None
    if not is_overdue:
        turn.reply(purpose.asked.ticket, join_error(error))
    _next_static(turn, group)


def static_member_overdue(
    turn: Turn, group: ClassicGroup, purpose: StoreStaticMember, error: ErrorCode
) -> None:
    """Respond with `error` to the JoinGroup requests that wait for a static member's append.

    The append stays open: no other record of the group may be written until this append is
    committed or has failed.
    """
    assert group.replacement is not None
    group.replacement = replace(group.replacement, is_overdue=True)
    turn.reply(purpose.asked.ticket, join_error(error))
    for asked in group.waiting_static.values():
        turn.reply(asked.ticket, join_error(error))
    group.waiting_static.clear()


def _next_static(turn: Turn, group: ClassicGroup) -> None:
    """Handle waiting JoinGroups of static members, up to the first that appends a record."""
    waiting, group.waiting_static = group.waiting_static, {}
    for asked in waiting.values():
        join_group(turn, group, asked)
