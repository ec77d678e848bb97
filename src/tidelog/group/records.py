"""Content of the records of `__consumer_offsets`: an offset, a group, or the end of either.

A record is a key with a value, or without one (a tombstone). Their bytes (G6) are made elsewhere.
Kafka records of a group what its last finished rebalance decided, or that it became empty. Joins
under way are in no record, and are lost with the coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.core.types import NO_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition

#: First leader epoch that stands for a partition that does not exist.
NO_PARTITION = -1
#: Stands for an unknown timestamp (records of old brokers).
NO_TIMESTAMP = -1


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group_id: str
    topic_partition: TopicPartition


class GroupKey(NamedTuple):
    """Key of a group."""

    group_id: str


class PartitionIncarnation(NamedTuple):
    """The incarnation of a partition in which an offset was committed (G6).

    A topic that was deleted and created again has another id. A partition that was removed and
    added again has a higher first leader epoch (V71).
    """

    topic_id: TopicId = ZERO_TOPIC_ID
    first_leader_epoch: int = 0

    @property
    def exists(self) -> bool:
        """Whether it is that of a partition; False for `NO_PARTITION`."""
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
        """Return whether this incarnation is over when `ended` is; an unknown one is."""
        if self.topic_id == ZERO_TOPIC_ID:
            return True
        return (
            self.topic_id == ended.topic_id and self.first_leader_epoch <= ended.first_leader_epoch
        )


#: Of offsets that other coordinators wrote, and of topics without ids.
UNKNOWN_INCARNATION = PartitionIncarnation()


class CommittedOffset(NamedTuple):
    """An offset as a group committed it; times are wall-clock milliseconds.

    A coordinator may have to load a million of them: a tuple is made in less than half the time of
    a frozen dataclass.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    #: Set only where the client chose a retention (OffsetCommit before version 5).
    expire_timestamp_ms: int = NO_TIMESTAMP
    incarnation: PartitionIncarnation = UNKNOWN_INCARNATION


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A member of a finished generation."""

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
    """A finished generation; without members the group is empty."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    #: When the group entered its state, wall clock.
    state_timestamp_ms: int
    members: tuple[MemberSnapshot, ...] = ()


class OffsetRecord(NamedTuple):
    """A committed offset, or (None) the end of one."""

    key: OffsetKey
    value: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A finished generation, or (None) the end of the group."""

    key: GroupKey
    value: GroupSnapshot | None


Record = OffsetRecord | GroupRecord
