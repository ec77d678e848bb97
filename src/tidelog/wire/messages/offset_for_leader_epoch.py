"""OffsetForLeaderEpoch (key 23), versions 2 to 4: where a leader epoch ends in the log.

Followers and consumers detect divergence by this request (KIP-101, KIP-320). Version 2 fences by
the current leader epoch, version 3 names the requesting replica (-2 for a tool, which may look
beyond the high watermark), version 4 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class OffsetForLeaderPartition:
    """The requested leader epoch, and the sender's current leader epoch, for fencing."""

    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", -1, ignorable=True)
    leader_epoch: int = int32("0+")


@dataclass(slots=True)
class OffsetForLeaderTopic:
    """The requested epochs of one topic's partitions."""

    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    """The requested leader epochs; `replica_id` is -1 for consumers and -2 for tools."""

    replica_id: int = int32("3+", -2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


@dataclass(slots=True)
class EpochEndOffset:
    """The largest epoch up to the requested epoch, and its end offset, or -1 if unknown."""

    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", -1, ignorable=True)
    end_offset: int = int64("0+", -1)


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    """The end offsets of leader epochs of one topic's partitions."""

    topic: str = string("0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    """The end offsets of leader epochs; `throttle_time_ms` is 0 without quotas."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")


API = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
    min_version=2,
    max_version=4,
    first_flexible_version=4,
)
