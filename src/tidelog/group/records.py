"""Content of the records of `__consumer_offsets`: an offset, a group, or a tombstone of either.

A record is a key with a value, or a key without a value (a tombstone). The broker encodes the
records (`offset_records`, G6). Kafka's group record holds the result of the last completed
rebalance, or that the group became empty. Joins under way are not recorded, and are lost with the
coordinator.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition

#: The first leader epoch in the incarnation of a partition that does not exist.
NO_PARTITION = -1
#: Value of an unknown timestamp (records of old brokers).
NO_TIMESTAMP = -1


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group_id: str
    topic_partition: TopicPartition


class GroupKey(NamedTuple):
    """Key of a group."""

    group_id: str


class PartitionIncarnation(NamedTuple):
    """The incarnation of a partition at the time of an offset commit (G6).

    A topic that was deleted and recreated has another id. A partition that was removed and added
    again has a higher first leader epoch (V71).
    """

    topic_id: TopicId = ZERO_TOPIC_ID
    first_leader_epoch: int = 0

    @property
    def exists(self) -> bool:
        """Whether the partition exists; False if the first leader epoch is `NO_PARTITION`."""
        return self.first_leader_epoch != NO_PARTITION

    def has_ended(self, present: PartitionIncarnation) -> bool:
        """Return whether `present` is a later incarnation than this one."""
        if ZERO_TOPIC_ID in (present.topic_id, self.topic_id):
            return False
        return (
            present.topic_id != self.topic_id
            or present.first_leader_epoch > self.first_leader_epoch
        )

    def ended_with(self, ended: PartitionIncarnation) -> bool:
        """Return whether this incarnation is unknown, equal to `ended`, or earlier than `ended`."""
        if self.topic_id == ZERO_TOPIC_ID:
            return True
        return (
            self.topic_id == ended.topic_id and self.first_leader_epoch <= ended.first_leader_epoch
        )


#: The incarnation of offsets whose record has no incarnation, and of partitions of topics without
#: ids.
UNKNOWN_INCARNATION = PartitionIncarnation()


class CommittedOffset(NamedTuple):
    """An offset as a group committed it; times are wall-clock milliseconds.

    This class is a tuple, because a coordinator may load a million offsets, and creating a frozen
    dataclass takes more than twice as long.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    #: Time at which the offset expires; set only if the client chose a retention (OffsetCommit
    #: before version 5).
    expire_timestamp_ms: int = NO_TIMESTAMP
    incarnation: PartitionIncarnation = UNKNOWN_INCARNATION


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A member of a generation, as the group's record holds it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    #: The member's metadata for the chosen protocol.
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A generation, as the group's record holds it; without members, the group is empty."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    #: Wall-clock time in ms at which the group entered its state.
    state_timestamp_ms: int
    members: tuple[MemberSnapshot, ...] = ()


class OffsetRecord(NamedTuple):
    """A committed offset, or the tombstone of an offset if the value is None."""

    key: OffsetKey
    value: CommittedOffset | None


class GroupRecord(NamedTuple):
    """The record of a group's last generation; if the value is None, the group's tombstone."""

    key: GroupKey
    value: GroupSnapshot | None


Record = OffsetRecord | GroupRecord
