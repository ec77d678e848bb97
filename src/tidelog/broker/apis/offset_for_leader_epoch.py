"""OffsetForLeaderEpoch (key 23), versions 2 to 4: the end of a leader epoch.

The leader responds with the end of a leader epoch in its log (V32, KIP-320). The response has the
largest epoch of the log that is not above the requested epoch, and the end offset of this epoch;
both are -1 if there is no such epoch. The latest epoch ends at the log end, also for consumers, as
in Kafka. The leader refuses a request whose current leader epoch differs from the leader's epoch
(V37).
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.apis.support.replica_ids import note_replica
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import CLUSTER_ACTION, DESCRIBE_TOPIC
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

CARD = Card(api_key=23, min_version=2, max_version=4, rights=(CLUSTER_ACTION, DESCRIBE_TOPIC))


def handle(
    context: ApiContext, request: Request[OffsetForLeaderEpochRequest]
) -> OffsetForLeaderEpochResponse:
    """Return the end of the requested epoch for each partition."""
    message = request.message
    note_replica(context.services, request, message.replica_id)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [
                    _answer(context, message, TopicPartition(topic.topic, asked.partition), asked)
                    for asked in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _answer(
    context: ApiContext,
    message: OffsetForLeaderEpochRequest,
    topic_partition: TopicPartition,
    asked: OffsetForLeaderPartition,
) -> EpochEndOffset:
    partition = context.replicas.get(topic_partition)
    if partition is None:
        error = context.replicas.missing_replica_error(topic_partition)
        return EpochEndOffset(error, asked.partition)
    error = partition.check_leader_epoch(asked.current_leader_epoch)
    if error:
        return EpochEndOffset(error, asked.partition)
    if message.replica_id >= 0 and context.replicas.takeovers.watched:
        context.replicas.takeovers.connected(
            partition, message.replica_id, context.services.clock.monotonic_ms()
        )
    log = partition.log
    end = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
    return EpochEndOffset(0, asked.partition, end.leader_epoch, end.end_offset)
