"""Requests of clients to a group's coordinator, without versions and bytes.

Each request names one group. A request for several groups (batched OffsetFetch, DescribeGroups,
DeleteGroups) is passed group by group. The caller chooses the ticket under which it gets the
answer; no two waiting requests may share a ticket. A field that a version lacks has the default
given here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.core.types import NO_EPOCH, TopicPartition
from tidelog.group.records import UNKNOWN_INCARNATION, PartitionIncarnation

#: Member id of a client that has none yet, or that commits without being a member.
NO_MEMBER = ""
NO_GENERATION = -1
#: From this version of JoinGroup on, a client first gets its id by MEMBER_ID_REQUIRED (KIP-394).
MEMBER_ID_REQUIRED_VERSION = 4
#: From this version of JoinGroup on, the answer may let a leader skip the assignment (KIP-814).
SKIP_ASSIGNMENT_VERSION = 9
#: From this version of DescribeGroups on, a group that does not exist is an error.
GROUP_ID_NOT_FOUND_VERSION = 6


class Protocol(NamedTuple):
    """One assignment protocol that a member supports, with its metadata for the leader."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAsked:
    """JoinGroup.

    `uuid` is fresh random text, with which the coordinator ends a member id that it makes.

    Version 0 has no rebalance timeout: the session timeout stands for it.
    """

    ticket: int
    version: int
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    uuid: str


@dataclass(frozen=True, slots=True)
class SyncAsked:
    """SyncGroup; the leader alone sends `assignments` (member id, bytes)."""

    ticket: int
    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatAsked:
    """Heartbeat."""

    ticket: int
    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None = None


class MemberIdentity(NamedTuple):
    """A member that leaves; by instance id alone where an administrator removes it."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """LeaveGroup; before version 3 always one member."""

    ticket: int
    group_id: str
    members: tuple[MemberIdentity, ...]


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One partition of an OffsetCommit."""

    topic_partition: TopicPartition
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    #: The partition as the coordinator's broker knows it.
    incarnation: PartitionIncarnation = UNKNOWN_INCARNATION


@dataclass(frozen=True, slots=True)
class OffsetCommitAsked:
    """OffsetCommit; topics that do not exist were answered before.

    `retention_ms` is of versions 2 to 4, -1 for the broker's.
    """

    ticket: int
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER
    instance_id: str | None = None
    retention_ms: int = -1


@dataclass(frozen=True, slots=True)
class OffsetFetchAsked:
    """OffsetFetch of one group; `partitions` is None for all partitions of which it has offsets."""

    ticket: int
    group_id: str
    partitions: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class OffsetDeleteAsked:
    """OffsetDelete; topics that do not exist were answered before."""

    ticket: int
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribeAsked:
    """DescribeGroups, for one group."""

    ticket: int
    group_id: str
    version: int = 5


@dataclass(frozen=True, slots=True)
class DeleteGroupAsked:
    """DeleteGroups, for one group."""

    ticket: int
    group_id: str


Asked = (
    JoinAsked
    | SyncAsked
    | HeartbeatAsked
    | LeaveAsked
    | OffsetCommitAsked
    | OffsetFetchAsked
    | OffsetDeleteAsked
    | DescribeAsked
    | DeleteGroupAsked
)
