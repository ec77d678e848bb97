"""OffsetCommit (key 8), versions 2 to 9: commit how far a group has read.

Version 3 brings the throttle time, version 5 removes the retention time (KIP-211), version 6 brings
leader epochs (KIP-320). Version 7 brings static members (KIP-345), version 8 is flexible. Version 9
serves members of KIP-848's protocol, and may respond with STALE_MEMBER_EPOCH and
GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    """The next offset to read of a partition, with metadata of the client's own."""

    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", -1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    """The offsets to commit for one topic."""

    name: str = string("0+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


@dataclass(slots=True)
class OffsetCommitRequest:
    """The offsets that a group commits.

    A consumer that is not a member of the group sends generation -1 with an empty member id.
    `retention_time_ms` -1 leaves the retention to the broker.
    """

    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", -1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", None, nullable="7+")
    retention_time_ms: int = int64("2-4", -1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    """The outcome of committing the offset of one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    """The outcomes of committing the offsets of one topic."""

    name: str = string("0+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


@dataclass(slots=True)
class OffsetCommitResponse:
    """The outcomes of commits; every partition repeats an error of the whole group."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")


API = Api(
    key=8,
    name="OffsetCommit",
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    min_version=2,
    max_version=9,
    first_flexible_version=8,
)
