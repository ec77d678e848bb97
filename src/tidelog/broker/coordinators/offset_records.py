"""The encoding and decoding of records of `__consumer_offsets` (G2).

Record values have the same versions as in Kafka 3.9. As in Kafka (KIP-915), the coordinator skips
unknown kinds of records, such as those of groups of KIP-848. A committed offset also has a header,
which Kafka ignores: the topic's id and the partition's first leader epoch. By this header (the
incarnation of the partition) the coordinator recognizes offsets of a deleted topic whose name was
used again.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Final

from tidelog.core.errors import ProtocolError
from tidelog.core.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.group.records import (
    UNKNOWN_INCARNATION,
    CommittedOffset,
    GroupKey,
    GroupRecord,
    GroupSnapshot,
    MemberSnapshot,
    OffsetKey,
    OffsetRecord,
    PartitionIncarnation,
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

#: Name of the header of a committed offset, which holds topic id and first leader epoch.
INCARNATION_HEADER: Final = "tidelog.partition"
_INCARNATION: Final = struct.Struct(">16si")


def encode(record: Record, timestamp_ms: int) -> NewRecord:
    """Encode a record; raise SchemaError if a string in the record is too long."""
    if isinstance(record, OffsetRecord):
        group_id, (topic, partition) = record.key
        key = consumer_offsets.encode_key(OffsetCommitKey(group_id, topic, partition))
        offset = record.value
        if offset is None:
            return NewRecord(key, None, timestamp_ms)
        return NewRecord(key, _encode_offset(offset), timestamp_ms, _headers(offset.incarnation))
    key = consumer_offsets.encode_key(GroupMetadataKey(record.key.group_id))
    group = record.value
    return NewRecord(key, None if group is None else _encode_group(group), timestamp_ms)


def _headers(incarnation: PartitionIncarnation) -> tuple[tuple[str, bytes], ...]:
    if incarnation.topic_id == ZERO_TOPIC_ID:
        return ()
    return ((INCARNATION_HEADER, _INCARNATION.pack(*incarnation)),)


@functools.lru_cache(maxsize=4_096)
def _incarnation(header: bytes) -> PartitionIncarnation:
    """Decode the incarnation in a header; many offsets have the same header, hence the cache.

    Raises ProtocolError if the header is not an incarnation.
    """
    try:
        return PartitionIncarnation(*_INCARNATION.unpack(header))
    except struct.error:
        raise ProtocolError(f"header {INCARNATION_HEADER} has {len(header)} bytes") from None


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


def decode(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> Record | None:
    """Decode the record of a key, a value and headers; return None for an unknown kind.

    Raises ProtocolError for bytes that cannot be decoded as a record.
    """
    try:
        name = consumer_offsets.decode_key(b"" if key is None else key)
        if isinstance(name, GroupMetadataKey):
            snapshot = None if value is None else _decode_group(value)
            return GroupRecord(GroupKey(name.group), snapshot)
        topic_partition = TopicPartition(name.topic, name.partition)
        offset = None if value is None else _decode_offset(value, headers)
        return OffsetRecord(OffsetKey(name.group, topic_partition), offset)
    except UnknownVersion:
        return None


def _decode_offset(data: bytes, headers: Sequence[tuple[str, bytes | None]]) -> CommittedOffset:
    value: OffsetCommitValue = OFFSET_COMMIT_VALUE.decode(data)
    incarnation = UNKNOWN_INCARNATION
    for name, content in headers:
        if name == INCARNATION_HEADER and content is not None:
            incarnation = _incarnation(content)
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp_ms,
        value.expire_timestamp_ms,
        incarnation,
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
                # A member in a record of version 0 has no rebalance timeout; as in a JoinGroup, the
                # session timeout replaces it.
                member.rebalance_timeout_ms or member.session_timeout_ms,
                member.subscription,
                member.assignment,
            )
            for member in value.members
        ),
    )
