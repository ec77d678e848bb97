"""OffsetCommit, OffsetFetch, OffsetDelete: an offset is visible once its record is replicated.

Whether a client may commit depends on its generation and member id. A client that is not a member
may commit, with generation -1, while the group is empty. A group that has only offsets is a simple
group: it has no record of its own, and counts as a classic group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.asked import (
    Asked,
    commit_response,
    committed_keys,
    existing_error,
    refusal,
)
from tidelog.group.classic.classic_group import ClassicGroup
from tidelog.group.group import Group
from tidelog.group.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetKey,
    OffsetRecord,
    PartitionIncarnation,
)
from tidelog.group.turn import DeleteOffsets, StoreOffsets, Turn
from tidelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

#: The offset in a response for a partition without a committed offset.
NO_OFFSET = -1


def commit(turn: Turn, asked: Asked[OffsetCommitRequest]) -> None:
    """Handle an OffsetCommit request."""
    group, message = turn.groups.get(asked.group_id), asked.message
    error = ErrorCode.NONE
    if group is not None:
        error = group.commit_error(message)
    elif message.generation_id_or_member_epoch >= 0:
        error = ErrorCode.ILLEGAL_GENERATION
    elif len(turn.groups) >= turn.settings.max_groups:
        error = ErrorCode.POLICY_VIOLATION
    else:
        group = turn.groups[asked.group_id] = ClassicGroup(asked.group_id, turn.now.wall_ms)
    if error is not ErrorCode.NONE or group is None:
        turn.reply(asked.ticket, refusal(asked, error))
        return
    member = group.session_of(message.member_id)
    if member is not None:
        turn.touch(group, message.member_id, *member)
    _store(turn, group, asked)


def _store(turn: Turn, group: Group, asked: Asked[OffsetCommitRequest]) -> None:
    errors: list[ErrorCode] = []
    records: dict[TopicPartition, OffsetRecord] = {}
    room = turn.settings.max_offsets_per_group - len(group.offsets)
    message = asked.message
    wanted = (each for topic in message.topics for each in topic.partitions)
    for key, each in zip(committed_keys(message), wanted, strict=True):
        incarnation = asked.incarnation_of(key)
        is_known = key in group.offsets or key in records
        error = ErrorCode.NONE
        if not incarnation.exists:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif len(each.committed_metadata or "") > turn.settings.offset_metadata_max_bytes:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        elif room <= 0 and not is_known:
            error = ErrorCode.POLICY_VIOLATION
        else:
            room -= not is_known
            value = _value(turn, each, incarnation, message.retention_time_ms)
            records[key] = OffsetRecord(OffsetKey(group.group_id, key), value)
        errors.append(error)
    if not records:
        turn.reply(asked.ticket, commit_response(message, errors))
        return
    for key in records:
        group.uncommitted[key] = group.uncommitted.get(key, 0) + 1
    turn.append(group, list(records.values()), StoreOffsets(asked, tuple(errors)))


def _value(
    turn: Turn,
    wanted: OffsetCommitRequestPartition,
    incarnation: PartitionIncarnation,
    retention_ms: int,
) -> CommittedOffset:
    wall_ms = turn.now.wall_ms
    return CommittedOffset(
        wanted.committed_offset,
        wanted.committed_leader_epoch,
        wanted.committed_metadata or "",
        wall_ms,
        NO_TIMESTAMP if retention_ms < 0 else wall_ms + retention_ms,
        incarnation,
    )


def settled(group: Group, records: Iterable[OffsetRecord]) -> None:
    """Note that the append of `records` has an outcome, whether success or failure."""
    for record in records:
        key = record.key.topic_partition
        count = group.uncommitted.pop(key, 0) - 1
        assert count >= 0, "each commit under way is counted until it is settled (G1)"
        if count:
            group.uncommitted[key] = count


def apply(group: Group, record: OffsetRecord) -> None:
    """Apply an offset record that is in the log; only this function changes offsets."""
    if record.value is None:
        group.offsets.pop(record.key.topic_partition, None)
    else:
        group.offsets[record.key.topic_partition] = record.value


def fetch(turn: Turn, asked: Asked[OffsetFetchRequestGroup]) -> None:
    """Handle an OffsetFetch request, in every state of the group.

    Transactions are not supported yet, so every committed offset is stable (KIP-447). The answer
    leaves out offsets of earlier topics of the same name, and of removed partitions, because
    their tombstones may not be written yet (G6).
    """
    group = turn.groups.get(asked.group_id)
    known = {} if group is None else group.offsets
    keys: Iterable[TopicPartition] = known
    if asked.message.topics is not None:
        keys = (
            TopicPartition(topic.name, partition)
            for topic in asked.message.topics
            for partition in topic.partition_indexes
        )
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for key in keys:
        topic = topics.setdefault(key.topic, OffsetFetchResponseTopics(key.topic))
        found = known.get(key)
        if found is not None and found.incarnation.has_ended(asked.incarnation_of(key)):
            found = None
        topic.partitions.append(_fetched(key.partition, found))
    answer = OffsetFetchResponseGroup(asked.group_id, list(topics.values()))
    turn.reply(asked.ticket, answer)


def _fetched(partition: int, found: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if found is None:
        return OffsetFetchResponsePartitions(partition, NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition, found.offset, found.leader_epoch, found.metadata
    )


def delete(turn: Turn, asked: Asked[OffsetDeleteRequest]) -> None:
    """Handle an OffsetDelete request (KIP-496); offsets of subscribed topics stay."""
    group = turn.groups.get(asked.group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_error()
    if error is not ErrorCode.NONE or group is None:
        turn.reply(asked.ticket, refusal(asked, error))
        return
    errors: list[ErrorCode] = []
    records = {}
    for topic in asked.message.topics:
        for each in topic.partitions:
            key = TopicPartition(topic.name, each.partition_index)
            error = existing_error(asked, key, ErrorCode.NONE)
            if error is ErrorCode.NONE:
                if group.keeps_offsets_of(key.topic):
                    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif key in group.offsets or key in group.uncommitted:
                    records[key] = tombstone(group, key)
            errors.append(error)
    if records:
        turn.append(group, list(records.values()), DeleteOffsets(asked, tuple(errors)))
    else:
        turn.reply(asked.ticket, delete_response(asked.message, errors))


def delete_response(
    message: OffsetDeleteRequest, errors: Sequence[ErrorCode]
) -> OffsetDeleteResponse:
    """Return an OffsetDelete's response with the errors of its partitions, in request order."""
    error = iter(errors)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(each.partition_index, next(error))
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def tombstone(group: Group, key: TopicPartition) -> OffsetRecord:
    """Return the record that deletes an offset."""
    return OffsetRecord(OffsetKey(group.group_id, key), None)
