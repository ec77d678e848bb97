"""Keys and values of the records of `__consumer_offsets`, in the versions of Kafka 3.9.

The version of a key is its kind: 0 and 1 are committed offsets, 2 is the metadata of a group.
Higher versions belong to KIP-848's groups and raise UnknownVersion. A null value, which deletes its
key, is handled outside this module.

Version 1 of OffsetCommitValue has an expiry time of the offset, and version 3 has the leader epoch
(KIP-320). GroupMetadataValue has the rebalance timeout from version 1 on (KIP-62), the time of the
last change of state from version 2 on (KIP-211), and static members from version 3 on (KIP-345).
Version 4 of both structs is flexible, so that older readers can skip later fields (KIP-915).
tidelog reads version 4 but does not write it. Extra bytes after a key or value are rejected,
because two different keys must not be read as equal.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.wire.primitives import Buffer
from tidelog.wire.schema import array, binary, int32, int64, string
from tidelog.wire.versioned import UnknownVersion, Versioned, version_of


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """The key of an offset that a group has committed for a partition."""

    group: str = string("0+")
    topic: str = string("0+")
    partition: int = int32("0+")


@dataclass(slots=True)
class OffsetCommitValue:
    """A committed offset, which is the next offset to read.

    Times are wall clock in ms; `expire_timestamp_ms` -1 leaves the retention to the broker. An
    unknown `leader_epoch` is -1.
    """

    offset: int = int64("0+")
    leader_epoch: int = int32("3+", -1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp_ms: int = int64("0+")
    expire_timestamp_ms: int = int64("1", -1, ignorable=True)


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """The key of a group's metadata."""

    group: str = string("0+")


@dataclass(slots=True)
class MemberMetadata:
    """A group member, with its subscription and its assignment."""

    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", None, nullable="3+", ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("1+", ignorable=True)
    session_timeout_ms: int = int32("0+")
    subscription: bytes = binary("0+")
    assignment: bytes = binary("0+")


@dataclass(slots=True)
class GroupMetadataValue:
    """A group's metadata in one generation; without members, `protocol` and `leader` are null.

    `current_state_timestamp_ms` is wall-clock time, or -1 if unknown.
    """

    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp_ms: int = int64("2+", -1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")


OFFSET_COMMIT_KEY: Final = Versioned(OffsetCommitKey, 0, 1)
OFFSET_COMMIT_VALUE: Final = Versioned(OffsetCommitValue, 0, 4, first_flexible_version=4)
GROUP_METADATA_KEY: Final = Versioned(GroupMetadataKey, 2, 2)
GROUP_METADATA_VALUE: Final = Versioned(GroupMetadataValue, 0, 4, first_flexible_version=4)

_KEYS: Final[dict[int, Versioned[Any]]] = {
    version: key for key in (OFFSET_COMMIT_KEY, GROUP_METADATA_KEY) for version in key.versions
}

# Versions in which tidelog writes keys and values, which Kafka 3.9 can read.
_OFFSET_COMMIT_KEY_VERSION: Final = 1
_GROUP_METADATA_KEY_VERSION: Final = 2
_VALUE_VERSION: Final = 3
#: The only version of OffsetCommitValue in which an offset has its own expiry.
_EXPIRING_VALUE_VERSION: Final = 1


def encode_key(key: OffsetCommitKey | GroupMetadataKey) -> bytes:
    """Return the bytes of a record's key; raise SchemaError for a key that cannot be written."""
    if isinstance(key, GroupMetadataKey):
        return GROUP_METADATA_KEY.encode(key, _GROUP_METADATA_KEY_VERSION)
    return OFFSET_COMMIT_KEY.encode(key, _OFFSET_COMMIT_KEY_VERSION)


def decode_key(data: Buffer) -> OffsetCommitKey | GroupMetadataKey:
    """Return a record's key; raise UnknownVersion if readers must skip it, else ProtocolError."""
    version = version_of(data, "a key of __consumer_offsets")
    codec = _KEYS.get(version)
    if codec is None:
        raise UnknownVersion("a key of __consumer_offsets", version, max(_KEYS))
    key: OffsetCommitKey | GroupMetadataKey = codec.decode(data)
    return key


def encode_offset_commit_value(value: OffsetCommitValue) -> bytes:
    """Return the bytes of a value: version 3, or 1 if the offset has its own expiry.

    Version 1 has no leader epoch. Raises SchemaError for a value that cannot be written.
    """
    expires = value.expire_timestamp_ms != -1
    return OFFSET_COMMIT_VALUE.encode(value, _EXPIRING_VALUE_VERSION if expires else _VALUE_VERSION)


def encode_group_metadata_value(value: GroupMetadataValue) -> bytes:
    """Return a value's bytes, version 3; raise SchemaError for a value that cannot be written."""
    return GROUP_METADATA_VALUE.encode(value, _VALUE_VERSION)
