"""DeleteRecords (key 21), versions 0 to 2: raise the log start offset of partitions (KIP-107).

Version 2 is flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import Api, array, int16, int32, int64, string
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class DeleteRecordsPartition:
    """`offset` is the first to be kept; -1 stands for the high watermark."""

    partition_index: int = int32("0+")
    offset: int = int64("0+")


@dataclass(slots=True)
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


@dataclass(slots=True)
class DeleteRecordsRequest:
    """`timeout_ms` bounds the wait for the followers."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    """`low_watermark`: the least log start offset of all replicas; -1 with an error."""

    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    """Outcomes of one topic."""

    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


@dataclass(slots=True)
class DeleteRecordsResponse:
    """Outcomes, one per requested partition."""

    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")


API = Api(
    key=21,
    name="DeleteRecords",
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
    min_version=0,
    max_version=2,
    first_flexible_version=2,
)
