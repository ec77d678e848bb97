"""GetReplicaLogInfo (key 93), version 0: the controller asks a broker for the ends of logs (E6).

The flexible API has the format of Kafka 4.1 (KIP-966). Only tidelog has the tagged field
`log_start_offset`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, uuid

#: The tag of a field that only tidelog has, far from the tags that Kafka assigns.
LOG_START_OFFSET_TAG = 20_000


@dataclass(slots=True)
class GetReplicaLogInfoTopic:
    """The partitions of one topic whose log ends are requested."""

    topic_id: bytes = uuid("0+", ignorable=True)
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class GetReplicaLogInfoRequest:
    """The request for log ends, of which a broker reports at most 1,000."""

    topic_partitions: list[GetReplicaLogInfoTopic] | None = array(
        GetReplicaLogInfoTopic, "0+", nullable="0+"
    )


@dataclass(slots=True)
class PartitionLogInfo:
    """The end of one log, with its last leader epoch, or -1 if the log has no record."""

    partition: int = int32("0+")
    last_written_leader_epoch: int = int32("0+")
    current_leader_epoch: int = int32("0+")
    log_end_offset: int = int64("0+")
    error_code: int = int16("0+")
    log_start_offset: int = int64("0+", -1, ignorable=True, tag=LOG_START_OFFSET_TAG)


@dataclass(slots=True)
class TopicPartitionLogInfo:
    """The log ends of one topic's partitions."""

    topic_id: bytes = uuid("0+")
    partition_log_info: list[PartitionLogInfo] = array(PartitionLogInfo, "0+")


@dataclass(slots=True)
class GetReplicaLogInfoResponse:
    """The end offsets of logs; `truncated` is set if the request names too many partitions."""

    throttle_time_ms: int = int32("0+")
    broker_epoch: int = int64("0+")
    truncated: bool = boolean("0+")
    topic_partition_log_info_list: list[TopicPartitionLogInfo] = array(TopicPartitionLogInfo, "0+")


API = Api(
    key=93,
    name="GetReplicaLogInfo",
    request=GetReplicaLogInfoRequest,
    response=GetReplicaLogInfoResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
    inter_broker=True,
)
