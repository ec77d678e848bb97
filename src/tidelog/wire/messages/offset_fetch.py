"""OffsetFetch (key 9), versions 1 to 9: how far a group has read.

From version 2 on null topics request all, and an error of the group has a field of its own
(KIP-88). Version 3 brings the throttle time, 5 leader epochs (KIP-320), 6 is flexible. Version 7
can wait for transactions that are open on an offset (KIP-447). Version 8 names many groups in
`groups` (KIP-709), 9 the requesting member (KIP-848).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    """Partitions of one topic (up to version 7)."""

    name: str = string("0-7")
    partition_indexes: Sequence[int] = array("int32", "0-7")


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    """Partitions of one topic (from version 8)."""

    name: str = string("8+")
    partition_indexes: Sequence[int] = array("int32", "8+")


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    """One group; `topics` None: all that it has offsets of. Epoch -1 without KIP-848's protocol."""

    group_id: str = string("8+")
    member_id: str | None = string("9+", None, nullable="9+", ignorable=True)
    member_epoch: int = int32("9+", -1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", nullable="8+"
    )


@dataclass(slots=True)
class OffsetFetchRequest:
    """One group in the flat fields up to version 7, `groups` from 8.

    `require_stable`: respond UNSTABLE_OFFSET_COMMIT where a transaction may still change an offset.
    """

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    """Offset -1 with no error: none is committed (up to version 7)."""

    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", -1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    """Offsets of one topic (up to version 7)."""

    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    """Offset -1 with no error: none is committed (from version 8)."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", -1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    """Offsets of one topic (from version 8)."""

    name: str = string("8+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    """Offsets of one group, or the reason for none."""

    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@dataclass(slots=True)
class OffsetFetchResponse:
    """The flat fields up to version 7, `groups` from 8.

    Version 1 has no error of the group: it stands at every partition.
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
