"""How a scripted broker answers GetReplicaLogInfo."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicId, TopicPartition
from tidelog.wire.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)


def log_ends(
    message: GetReplicaLogInfoRequest,
    broker_epoch: int,
    names: Mapping[TopicId, str],
    ends: Mapping[TopicPartition, tuple[int, int]],
) -> GetReplicaLogInfoResponse:
    """The answer of a broker that has logs with these (last leader epoch, end offset)."""
    answer = GetReplicaLogInfoResponse(broker_epoch=broker_epoch)
    for topic in message.topic_partitions or ():
        logs = []
        for number in topic.partitions:
            end = ends.get(TopicPartition(names[topic.topic_id], number))
            error = ErrorCode.NONE if end else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            leader_epoch, end_offset = end or (-1, -1)
            logs.append(PartitionLogInfo(number, leader_epoch, 0, end_offset, error))
        answer.topic_partition_log_info_list.append(TopicPartitionLogInfo(topic.topic_id, logs))
    return answer
