"""OffsetFetch (key 9), versions 1 to 9: how far a group has read.

From version 2 on, null topics request all topics, and an error of the whole group has its own field
(KIP-88). Version 3 brings the throttle time, version 5 leader epochs (KIP-320); version 6 is
flexible. Version 7 can require stable offsets, which no open transaction may change (KIP-447).
Version 8 names many groups in `groups` (KIP-709), version 9 the requesting member (KIP-848).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    """The partitions of one topic whose offsets are requested (up to version 7)."""

    name: str = string("0-7")
    partition_indexes: Sequence[int] = array("int32", "0-7")


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    """The partitions of one topic whose offsets are requested (from version 8 on)."""

    name: str = string("8+")
    partition_indexes: Sequence[int] = array("int32", "8+")


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    """A group whose offsets are requested; null `topics` mean all its offsets.

    The member epoch is -1 without the protocol of KIP-848.
    """

    group_id: str = string("8+")
    member_id: str | None = string("9+", None, nullable="9+", ignorable=True)
    member_epoch: int = int32("9+", -1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", nullable="8+"
    )


@dataclass(slots=True)
class OffsetFetchRequest:
    """The request for offsets: of one group up to version 7, of `groups` from version 8 on.

    With `require_stable`, the response is UNSTABLE_OFFSET_COMMIT for an offset that a transaction
    may still change.
    """

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    """The committed offset of a partition; -1 without an error if none (up to version 7)."""

    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", -1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    """The committed offsets of one topic (up to version 7)."""

    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    """The committed offset of a partition; -1 without an error if none (from version 8)."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", -1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    """The committed offsets of one topic (from version 8 on)."""

    name: str = string("8+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    """The committed offsets of one group, or the error."""

    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@dataclass(slots=True)
class OffsetFetchResponse:
    """The committed offsets of one group up to version 7, of `groups` from version 8 on.

    Version 1 has no field for an error of the whole group, so every partition repeats the error.
    """

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")


API = Api(
    key=9,
    name="OffsetFetch",
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    min_version=1,
    max_version=9,
    first_flexible_version=6,
)
