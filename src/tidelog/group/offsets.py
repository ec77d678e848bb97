"""OffsetCommit, OffsetFetch, OffsetDelete: offsets are visible when their record is replicated.

A commit is fenced by generation and member. A client without membership commits with generation -1
while the group is empty. A group that has offsets alone is a simple group: it has no record of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.answers import (
    NO_OFFSET,
    FetchedOffset,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    refusal,
)
from tidelog.group.group import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from tidelog.group.records import NO_TIMESTAMP, CommittedOffset, OffsetKey, OffsetRecord
from tidelog.group.requests import (
    NO_MEMBER,
    OffsetCommitAsked,
    OffsetDeleteAsked,
    OffsetFetchAsked,
    OffsetToCommit,
)
from tidelog.group.turn import DeleteOffsets, StoreOffsets, Turn


def commit(turn: Turn, asked: OffsetCommitAsked) -> None:
    """Decide an OffsetCommit request."""
    group = turn.groups.get(asked.group_id)
    error = ErrorCode.NONE
    if group is not None:
        error = _commit_error(group, asked)
    elif asked.generation_id >= 0:
        error = ErrorCode.ILLEGAL_GENERATION
    elif len(turn.groups) >= turn.settings.max_groups:
        error = ErrorCode.POLICY_VIOLATION
    else:
        group = turn.groups[asked.group_id] = Group(asked.group_id, turn.now.wall_ms)
    if error is not ErrorCode.NONE or group is None:
        turn.reply(asked.ticket, refusal(asked, error))
        return
    member = group.members.get(asked.member_id)
    if member is not None:
        turn.touch(group, member.member_id, member.session, member.session_timeout_ms)
    _store(turn, group, asked)


def _commit_error(group: Group, asked: OffsetCommitAsked) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if asked.generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if asked.generation_id < 0 and asked.member_id == NO_MEMBER and asked.instance_id is None:
        # Only members may commit for a group that has members.
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.member_error(asked.member_id, asked.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if not is_current(group, asked.generation_id):
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member has joined this generation and does not know its assignment yet.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def is_current(group: Group, generation_id: int) -> bool:
    """Return whether a commit of this generation counts.

    A member of an older generation may not know what other members have read since.
    """
    return generation_id == group.generation_id


def _store(turn: Turn, group: Group, asked: OffsetCommitAsked) -> None:
    partitions = []
    records: dict[TopicPartition, OffsetRecord] = {}
    room = turn.settings.max_offsets_per_group - len(group.offsets)
    for wanted in asked.offsets:
        key = wanted.topic_partition
        is_known = key in group.offsets or key in records
        error = ErrorCode.NONE
        if len(wanted.metadata) > turn.settings.offset_metadata_max_bytes:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        elif room <= 0 and not is_known:
            error = ErrorCode.POLICY_VIOLATION
        else:
            room -= not is_known
            value = _value(turn, wanted, asked.retention_ms)
            records[key] = OffsetRecord(OffsetKey(group.group_id, key), value)
        partitions.append((key, error))
    if not records:
        turn.reply(asked.ticket, OffsetCommitAnswer(tuple(partitions)))
        return
    for key in records:
        group.uncommitted[key] = group.uncommitted.get(key, 0) + 1
    turn.append(group, list(records.values()), StoreOffsets(asked.ticket, tuple(partitions)))


def _value(turn: Turn, wanted: OffsetToCommit, retention_ms: int) -> CommittedOffset:
    wall_ms = turn.now.wall_ms
    return CommittedOffset(
        wanted.offset,
        wanted.leader_epoch,
        wanted.metadata,
        wall_ms,
        NO_TIMESTAMP if retention_ms < 0 else wall_ms + retention_ms,
        wanted.incarnation,
    )


def settled(group: Group, records: Iterable[OffsetRecord]) -> None:
    """Note that these commits are no longer under way, whatever their outcome."""
    for record in records:
        key = record.key.topic_partition
        count = group.uncommitted.pop(key, 0) - 1
        assert count >= 0, "each commit under way is counted until it is settled (G1)"
        if count:
            group.uncommitted[key] = count


def apply(group: Group, record: OffsetRecord) -> None:
    """Apply a record that is in the log; offsets change nowhere else."""
    if record.value is None:
        group.offsets.pop(record.key.topic_partition, None)
    else:
        group.offsets[record.key.topic_partition] = record.value


def fetch(turn: Turn, asked: OffsetFetchAsked) -> None:
    """Decide an OffsetFetch request, whatever the state of the group.

    Without transactions every committed offset is stable.
    """
    group = turn.groups.get(asked.group_id)
    known = {} if group is None else group.offsets
    keys = tuple(known) if asked.partitions is None else asked.partitions
    turn.reply(
        asked.ticket,
        OffsetFetchAnswer(ErrorCode.NONE, tuple(_fetched(key, known.get(key)) for key in keys)),
    )


def _fetched(key: TopicPartition, found: CommittedOffset | None) -> FetchedOffset:
    if found is None:
        return FetchedOffset(key, NO_OFFSET)
    return FetchedOffset(key, found.offset, found.leader_epoch, found.metadata, found.incarnation)


def delete(turn: Turn, asked: OffsetDeleteAsked) -> None:
    """Decide an OffsetDelete request (KIP-496); offsets of topics with subscribed members stay."""
    group = turn.groups.get(asked.group_id)
    error = _delete_error(group)
    if error is not ErrorCode.NONE or group is None:
        turn.reply(asked.ticket, OffsetDeleteAnswer(error))
        return
    partitions = []
    records = {}
    for key in asked.partitions:
        error = ErrorCode.NONE
        if group.state is not GroupState.EMPTY and group.is_subscribed(key.topic):
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif key in group.offsets or key in group.uncommitted:
            records[key] = tombstone(group, key)
        partitions.append((key, error))
    if records:
        purpose = DeleteOffsets(asked.ticket, tuple(partitions))
        turn.append(group, list(records.values()), purpose)
    else:
        turn.reply(asked.ticket, OffsetDeleteAnswer(ErrorCode.NONE, tuple(partitions)))


def _delete_error(group: Group | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def tombstone(group: Group, key: TopicPartition) -> OffsetRecord:
    """Return the record that deletes an offset."""
    return OffsetRecord(OffsetKey(group.group_id, key), None)
