"""DeleteRecords (key 21), versions 0 to 2: raise the log start offset of partitions (KIP-107).

Version 2 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class DeleteRecordsPartition:
    """A partition and its first offset to keep; -1 means the high watermark."""

    partition_index: int = int32("0+")
    offset: int = int64("0+")


@dataclass(slots=True)
class DeleteRecordsTopic:
    """The partitions of one topic whose records are deleted."""

    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


@dataclass(slots=True)
class DeleteRecordsRequest:
    """The request to delete records; `timeout_ms` bounds the wait for followers."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    """The smallest log start offset of all replicas, or -1 with an error."""

    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    """The outcomes of deleting records of one topic's partitions."""

    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


@dataclass(slots=True)
class DeleteRecordsResponse:
    """The outcomes of deleting records, one per requested partition."""

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
