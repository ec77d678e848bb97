"""Records of `__consumer_offsets` between a coordinator's decisions and the bytes in the log (G2).

Values are written in the versions that Kafka 3.9 writes. Unknown kinds of records (of KIP-848's
groups) are passed over, as in Kafka (KIP-915).
"""

from __future__ import annotations

from tidelog.core.types import TopicPartition
from tidelog.group.records import (
    CommittedOffset,
    GroupKey,
    GroupRecord,
    GroupSnapshot,
    MemberSnapshot,
    OffsetKey,
    OffsetRecord,
    Record,
)
from tidelog.records.builder import NewRecord
from tidelog.wire.data import consumer_offsets
from tidelog.wire.data.consumer_offsets import (
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.wire.versioned import UnknownVersion


def encode(record: Record, timestamp_ms: int) -> NewRecord:
    """Return the bytes of a record; SchemaError where a text in it is too long for one."""
    if isinstance(record, OffsetRecord):
        group_id, (topic, partition) = record.key
        key = consumer_offsets.encode_key(OffsetCommitKey(group_id, topic, partition))
        offset = record.value
        value = None if offset is None else _encode_offset(offset)
    else:
        key = consumer_offsets.encode_key(GroupMetadataKey(record.key.group_id))
        group = record.value
        value = None if group is None else _encode_group(group)
    return NewRecord(key, value, timestamp_ms)


def _encode_offset(offset: CommittedOffset) -> bytes:
    return consumer_offsets.encode_offset_commit_value(
        OffsetCommitValue(
            offset.offset,
            offset.leader_epoch,
            offset.metadata,
            offset.commit_timestamp_ms,
            offset.expire_timestamp_ms,
        )
    )


def _encode_group(group: GroupSnapshot) -> bytes:
    return consumer_offsets.encode_group_metadata_value(
        GroupMetadataValue(
            protocol_type=group.protocol_type,
            generation=group.generation_id,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp_ms=group.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.subscription,
                    assignment=member.assignment,
                )
                for member in group.members
            ],
        )
    )


def decode(key: bytes | None, value: bytes | None) -> Record | None:
    """Return the record behind these bytes, None for an unknown kind.

    Raises ProtocolError for bytes that are no such record.
    """
    try:
        name = consumer_offsets.decode_key(b"" if key is None else key)
        if isinstance(name, GroupMetadataKey):
            snapshot = None if value is None else _decode_group(value)
            return GroupRecord(GroupKey(name.group), snapshot)
        topic_partition = TopicPartition(name.topic, name.partition)
        offset = None if value is None else _decode_offset(value)
        return OffsetRecord(OffsetKey(name.group, topic_partition), offset)
    except UnknownVersion:
        return None


def _decode_offset(data: bytes) -> CommittedOffset:
    value: OffsetCommitValue = OFFSET_COMMIT_VALUE.decode(data)
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp_ms,
        value.expire_timestamp_ms,
    )


def _decode_group(data: bytes) -> GroupSnapshot:
    value: GroupMetadataValue = GROUP_METADATA_VALUE.decode(data)
    return GroupSnapshot(
        protocol_type=value.protocol_type,
        generation_id=value.generation,
        protocol_name=value.protocol,
        leader_id=value.leader,
        state_timestamp_ms=value.current_state_timestamp_ms,
        members=tuple(
            MemberSnapshot(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                # Version 0 has none: the session timeout stands for it, as in a JoinGroup.
                member.rebalance_timeout_ms or member.session_timeout_ms,
                member.subscription,
                member.assignment,
            )
            for member in value.members
        ),
    )
