"""RelinquishLeadership (key 20005), version 0: a leader asks the controller for another leader.

Only tidelog has this flexible API (F11, V68, D13, D14, G5). A leader sends the request because its
reads are slow, its log is damaged, or its disk is full or slow. A follower in the ISR also sends
the request if its log is damaged. A broker also names followers on its slow disks in the request,
so that they are not elected. A request without partitions says that no disk of the sender is full
or slow any more.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string, uuid


@dataclass(slots=True)
class RelinquishedPartition:
    """A partition whose replica on the sender should not lead, with its leader epoch."""

    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    #: The first damaged offset of the sender's log (V68); -1 if the log is not damaged.
    damaged_offset: int = int64("0+", -1)
    #: Whether the replica's log directory is full (D14) or slow (D13), so that the replica should
    #: not lead. A controller that does not know the field `is_unfit` treats the replica like a
    #: replica with slow reads.
    is_unfit: bool = boolean("0+", tag=0)


@dataclass(slots=True)
class RelinquishedTopic:
    """The partitions of one topic whose replicas on the sender should not lead."""

    topic_id: bytes = uuid("0+")
    partitions: list[RelinquishedPartition] = array(RelinquishedPartition, "0+")


@dataclass(slots=True)
class RelinquishLeadershipRequest:
    """A broker's request for other leaders, fenced by its `broker_epoch`."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", -1)
    topics: list[RelinquishedTopic] = array(RelinquishedTopic, "0+")


@dataclass(slots=True)
class RelinquishedPartitionResult:
    """The outcome for one partition: NONE if the sender does not lead it now, or the error."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class RelinquishedTopicResult:
    """The outcomes for one topic's partitions."""

    topic_id: bytes = uuid("0+")
    partitions: list[RelinquishedPartitionResult] = array(RelinquishedPartitionResult, "0+")


@dataclass(slots=True)
class RelinquishLeadershipResponse:
    """The outcomes; after a top-level error, the controller changed no leader."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[RelinquishedTopicResult] = array(RelinquishedTopicResult, "0+")


API = Api(
    key=20_005,
    name="RelinquishLeadership",
    request=RelinquishLeadershipRequest,
    response=RelinquishLeadershipResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
