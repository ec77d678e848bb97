"""RelinquishLeadership (key 20005), version 0: a leader asks the controller for another leader.

An API of tidelog's own (F11, V68, D13, D14, G5): Kafka has no request for it. A leader asks because
its reads are slow, its log is damaged, or its disk is full or slow. A member that follows by then
asks because of damage, too. One that follows on a slow disk is named so that it is not elected. A
request without partitions takes back that disks of the sender are full or slow.
Flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string, uuid
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class RelinquishedPartition:
    """A partition of which the sender has a replica, in a role of `leader_epoch`."""

    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    #: The first offset that the sender's log has lost to damage (V68); -1: its reads are slow.
    damaged_offset: int = int64("0+", -1)
    #: The log directory of the replica is full (D14) or slow (D13): it should not lead. Earlier
    #: controllers take it for slow reads.
    is_unfit: bool = boolean("0+", tag=0)


@dataclass(slots=True)
class RelinquishedTopic:
    """Partitions of one topic."""

    topic_id: bytes = uuid("0+")
    partitions: list[RelinquishedPartition] = array(RelinquishedPartition, "0+")


@dataclass(slots=True)
class RelinquishLeadershipRequest:
    """Fenced by the sender's `broker_epoch`."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", -1)
    topics: list[RelinquishedTopic] = array(RelinquishedTopic, "0+")


@dataclass(slots=True)
class RelinquishedPartitionResult:
    """NONE where the sender does not lead now, or the reason for which nothing has changed."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class RelinquishedTopicResult:
    """Outcomes of the partitions of one topic."""

    topic_id: bytes = uuid("0+")
    partitions: list[RelinquishedPartitionResult] = array(RelinquishedPartitionResult, "0+")


@dataclass(slots=True)
class RelinquishLeadershipResponse:
    """A top-level error means that nothing was considered."""

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
