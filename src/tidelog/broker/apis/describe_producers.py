"""DescribeProducers (key 61), version 0: the idempotent producers that a replica knows (KIP-664).

The leader and the followers of a partition respond to this request, as in Kafka. The transaction
start offset of a producer without an open transaction is -1.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import READ_TOPIC
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import validate_topic_name
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

CARD = Card(api_key=61, min_version=0, max_version=0, rights=(READ_TOPIC,))


def handle(
    context: ApiContext, request: Request[DescribeProducersRequest]
) -> DescribeProducersResponse:
    """Return the producers of each partition."""
    message = request.message
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [
                    _partition(context, TopicPartition(topic.name, number))
                    for number in topic.partition_indexes
                ],
            )
            for topic in message.topics
        ]
    )


def _partition(context: ApiContext, topic_partition: TopicPartition) -> PartitionResponse:
    number = topic_partition.partition
    try:
        validate_topic_name(topic_partition.topic)
    except KafkaError as error:
        return PartitionResponse(number, error.code, error.message)
    partition = context.replicas.get(topic_partition)
    if partition is None:
        return PartitionResponse(number, context.replicas.missing_replica_error(topic_partition))
    return PartitionResponse(
        number,
        ErrorCode.NONE,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_start,
            )
            for producer_id, entry in partition.log.producers.entries().items()
        ],
    )
