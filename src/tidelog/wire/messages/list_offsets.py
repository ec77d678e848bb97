"""ListOffsets (key 2), versions 0 to 9: offsets by timestamp.

Negative timestamps request special offsets: -1 latest, -2 earliest, -3 of the largest timestamp
(version 7), -4 earliest local (8), -5 latest tiered (9). Version 2 brings the isolation level,
version 4 the leader epoch for fencing; version 6 is flexible. Version 0 requests the first offsets
of several segments.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int8, int16, int32, int64, string


@dataclass(slots=True)
class ListOffsetsPartition:
    """A query for a partition's first offset with a record at or after `timestamp`."""

    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", -1, ignorable=True)
    timestamp: int = int64("0+")
    max_num_offsets: int = int32("0", 1)


@dataclass(slots=True)
class ListOffsetsTopic:
    """The queries for one topic's partitions."""

    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


@dataclass(slots=True)
class ListOffsetsRequest:
    """The queries for offsets; `replica_id` -1 is a consumer, which sees committed records only."""

    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    """The offset for one query; -1 without an error if all records are older than the timestamp."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    old_style_offsets: Sequence[int] = array("int64", "0")
    timestamp: int = int64("1+", -1)
    offset: int = int64("1+", -1)
    leader_epoch: int = int32("4+", -1)


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    """The offsets for the queries of one topic."""

    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


@dataclass(slots=True)
class ListOffsetsResponse:
    """The offsets for all queries; `throttle_time_ms` is 0 without quotas."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")


API = Api(
    key=2,
    name="ListOffsets",
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
    min_version=0,
    max_version=9,
    first_flexible_version=6,
)
