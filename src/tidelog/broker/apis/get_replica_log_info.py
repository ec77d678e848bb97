"""GetReplicaLogInfo (key 93), version 0: the controller reads the ends of logs (E6, KIP-966).

The controller compares the log ends of a partition's replicas if no replica is proven to have every
committed record. A replica that this broker does not host, or whose log is unreadable, gets an
error.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import CLUSTER_ACTION
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_LOG_ENDS_PER_REQUEST
from tidelog.core.types import NO_EPOCH, TopicId
from tidelog.replication import commands
from tidelog.wire.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)

CARD = Card(api_key=93, min_version=0, max_version=0, inter_broker=True, rights=(CLUSTER_ACTION,))


def handle(
    context: ApiContext, request: Request[GetReplicaLogInfoRequest]
) -> GetReplicaLogInfoResponse:
    """Respond with the ends of the first 1,000 logs that the request names."""
    response = GetReplicaLogInfoResponse(broker_epoch=context.services.broker_epoch)
    left = MAX_LOG_ENDS_PER_REQUEST
    for topic in request.message.topic_partitions or ():
        asked = topic.partitions[:left]
        left -= len(asked)
        response.truncated = response.truncated or len(asked) < len(topic.partitions)
        logs = [_log_info(context, topic.topic_id, partition) for partition in asked]
        if logs:
            response.topic_partition_log_info_list.append(
                TopicPartitionLogInfo(topic.topic_id, logs)
            )
    return response


def _failed(partition: int, error: ErrorCode, leader_epoch: int = NO_EPOCH) -> PartitionLogInfo:
    return PartitionLogInfo(partition, NO_EPOCH, leader_epoch, -1, error)


def _log_info(context: ApiContext, topic_id: TopicId, partition: int) -> PartitionLogInfo:
    replica = context.replicas.by_topic_id(topic_id, partition)
    if replica is None:
        has_failed_directory = bool(context.replicas.failed)
        return _failed(
            partition, commands.missing_log_error(has_failed_directory=has_failed_directory)
        )
    log = replica.log
    if log.directory.failure is not None:
        return _failed(partition, ErrorCode.KAFKA_STORAGE_ERROR, replica.leader_epoch)
    return PartitionLogInfo(
        partition,
        last_written_leader_epoch=log.epochs.epoch_at(log.log_end_offset - 1),
        current_leader_epoch=replica.leader_epoch,
        log_end_offset=log.log_end_offset,
        log_start_offset=log.log_start_offset,
    )
