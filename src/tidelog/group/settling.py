"""The handling of the outcome of an append: committed, failed, or not replicated in time.

When records are committed, the coordinator applies them to its state and sends the answers that
waited for them. If an append failed, its records are not in the log and never will be, so the
coordinator drops the intended change. If an append takes too long, the coordinator answers its
request with an error, but the append stays open. If such an append is committed later, the
coordinator applies it, as it would apply the records when it loads the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.group import forgetting, offsets
from tidelog.group.asked import commit_response, join_error, refusal
from tidelog.group.classic import joining, syncing
from tidelog.group.classic.classic_group import ClassicGroup, classic
from tidelog.group.classic.waits import StoreAssignment, StoreEmpty, StoreStaticMember
from tidelog.group.records import GroupSnapshot, OffsetRecord, Record
from tidelog.group.turn import (
    DeleteGroup,
    DeleteOffsets,
    ForgetOffsets,
    StoreOffsets,
    Turn,
    Unsettled,
)
from tidelog.wire.messages.delete_groups import DeletableGroupResult

#: Errors of an append if the partition of `__consumer_offsets` has too few replicas, or its topic
#: is being created. The client should retry with the same coordinator.
_UNAVAILABLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
#: Errors of an append if this broker no longer leads the partition of `__consumer_offsets`, or has
#: lost its log. The client should look for the group's coordinator again.
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_TOO_LARGE = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_FETCH_SIZE,
)


def offset_error(error: ErrorCode) -> ErrorCode:
    """Return the error for a client whose offsets could not be appended.

    Errors that this function does not map stay unchanged, for example REQUEST_TIMED_OUT, after
    which the client retries.
    """
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in _TOO_LARGE else error


def group_error(error: ErrorCode) -> ErrorCode:
    """Return the error for members whose group record could not be appended."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else offset_error(error)


def deletion_error(error: ErrorCode) -> ErrorCode:
    """Return the error for a deletion whose tombstones could not be appended."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return group_error(error)


def offset_records(records: Sequence[Record]) -> list[OffsetRecord]:
    """Return the offset records in `records`."""
    return [record for record in records if isinstance(record, OffsetRecord)]


def committed(turn: Turn, number: int) -> str:
    """Apply a replicated append, and return the id of the group that appended.

    Raises InvariantError if an earlier append is not settled yet.
    """
    entry = turn.ledger.settle(number, in_order=True)
    group = classic(turn.groups.get(entry.group_id))
    if group is None:
        # An earlier append deleted the group, so this append of offset tombstones changes nothing.
        return entry.group_id
    for record in offset_records(entry.records):
        offsets.apply(group, record)
    purpose, is_overdue = entry.purpose, entry.is_overdue
    match purpose:
        case StoreOffsets():
            offsets.settled(group, offset_records(entry.records))
            if not is_overdue:
                answer = commit_response(purpose.asked.message, purpose.errors)
                turn.reply(purpose.asked.ticket, answer)
        case StoreAssignment():
            snapshot = entry.records[0].value
            assert isinstance(snapshot, GroupSnapshot)
            syncing.assignment_stored(turn, group, snapshot)
        case StoreStaticMember():
            joining.static_member_stored(turn, group, purpose, is_overdue)
        case DeleteOffsets():
            if not is_overdue:
                response = offsets.delete_response(purpose.asked.message, purpose.errors)
                turn.reply(purpose.asked.ticket, response)
        case ForgetOffsets():
            if purpose.are_expired:
                group.is_expiring = False
                forgetting.expire(turn, group)
        case DeleteGroup():
            forgetting.group_deleted(turn, group, purpose, is_overdue)
        case _:
            assert isinstance(purpose, StoreEmpty)
    return entry.group_id


def failed(turn: Turn, number: int, error: ErrorCode) -> str:
    """Drop an append whose records will never be in the log; return its group's id."""
    entry = turn.ledger.settle(number, in_order=False)
    group = classic(turn.groups.get(entry.group_id))
    if group is None:
        return entry.group_id
    purpose = entry.purpose
    match purpose:
        case StoreOffsets():
            offsets.settled(group, offset_records(entry.records))
        case StoreStaticMember():
            joining.static_member_not_stored(
                turn, group, purpose, group_error(error), entry.is_overdue
            )
        case ForgetOffsets():
            if purpose.are_expired:
                group.is_expiring = False
        case DeleteGroup():
            forgetting.group_not_deleted(
                turn, group, purpose, deletion_error(error), entry.is_overdue
            )
        case _:
            pass
    if not entry.is_overdue:
        _refuse(turn, group, entry, error)
    return entry.group_id


def timed_out(turn: Turn, number: int, error: ErrorCode) -> str:
    """Answer the request of an append that is in the log but was not replicated in time.

    Returns the id of the append's group.
    """
    entry = turn.ledger.overdue(number)
    group = classic(turn.groups.get(entry.group_id))
    if group is None or entry.is_overdue:
        return entry.group_id
    purpose = entry.purpose
    if isinstance(purpose, StoreStaticMember):
        joining.static_member_overdue(turn, group, purpose, group_error(error))
    elif isinstance(purpose, DeleteGroup):
        if purpose.ticket is not None:
            answer = DeletableGroupResult(entry.group_id, deletion_error(error))
            turn.reply(purpose.ticket, answer)
    else:
        _refuse(turn, group, entry, error)
    return entry.group_id


def _refuse(turn: Turn, group: ClassicGroup, entry: Unsettled, error: ErrorCode) -> None:
    """Answer the request that waits for an append that failed or takes too long."""
    match entry.purpose:
        case StoreOffsets(asked, errors):
            failure = offset_error(error)
            failures = (own or failure for own in errors)
            turn.reply(asked.ticket, commit_response(asked.message, failures))
        case StoreAssignment(generation_id):
            syncing.assignment_not_stored(turn, group, generation_id, group_error(error))
        case DeleteOffsets(asked):
            turn.reply(asked.ticket, refusal(asked, deletion_error(error)))
        case _:
            pass


def moved_away(entry: Unsettled) -> tuple[int, Any] | None:
    """Return ticket and answer (NOT_COORDINATOR) of the request that waits for an append.

    Returns None if no request waits for the append.
    """
    error = ErrorCode.NOT_COORDINATOR
    if entry.is_overdue:
        return None
    match entry.purpose:
        case StoreOffsets(asked) | DeleteOffsets(asked):
            return asked.ticket, refusal(asked, error)
        case StoreStaticMember(asked):
            return asked.ticket, join_error(error)
        case DeleteGroup(ticket) if ticket is not None:
            return ticket, DeletableGroupResult(entry.group_id, error)
        case _:
            return None
