"""DescribeTopicPartitions (key 75), version 0: partitions in pages (KIP-966).

A page lists topics in the order of their names, beginning at the request's cursor. A page has at
most as many partitions as the smaller of the client's limit and `max.request.partition.size.limit`.
The response's cursor names the first partition after the page. The response has only the state that
the controller has published to this broker (V82). Every topic has its authorized operations, even
if the request does not ask for them, as in Kafka. If a partition has no eligible leader replicas,
their list is empty, not null, because Java's admin client cannot read a null list. As in Kafka 4,
the last known ELR of a leaderless partition is its last leader (E4). tidelog's tagged fields name
the replicas for which a leaderless partition waits.
"""

from __future__ import annotations

from tidelog.broker.apis.support.authorized_operations import TOPIC_OPERATIONS
from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_TOPIC
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import is_internal_topic, validate_topic_name
from tidelog.core.types import NO_LEADER
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

CARD = Card(api_key=75, min_version=0, max_version=0, rights=(DESCRIBE_TOPIC,))


def handle(
    context: ApiContext, request: Request[DescribeTopicPartitionsRequest]
) -> DescribeTopicPartitionsResponse:
    """Return one page of the requested topics' partitions, and the cursor of the next page."""
    message = request.message
    cursor = message.cursor
    first = "" if cursor is None else cursor.topic_name
    limit = context.services.config.max_request_partition_size_limit
    room = max(1, min(limit, message.response_partition_limit))
    names = sorted(
        {topic.name for topic in message.topics} if message.topics else context.services.view.topics
    )
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if name < first:
            continue
        topic = context.services.view.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        start = max(0, cursor.partition_index) if cursor is not None and name == first else 0
        numbers = [number for number in sorted(topic.partitions) if number >= start]
        if room == 0:
            response.next_cursor = Cursor(name, start)
            break
        page = numbers[:room]
        room -= len(page)
        response.topics.append(_topic(context, request.connection.listener, topic, page))
        if len(page) < len(numbers):
            response.next_cursor = Cursor(name, numbers[len(page)])
            break
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        validate_topic_name(name)
    except KafkaError as refused:
        error = refused.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _topic(
    context: ApiContext, listener: str, topic: TopicView, numbers: list[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        partitions=[
            _partition(context, listener, number, topic.partitions[number]) for number in numbers
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    context: ApiContext, listener: str, number: int, partition: PartitionView
) -> DescribeTopicPartitionsResponsePartition:
    wait = partition.wait
    has_leader = context.services.view.endpoint(partition.leader, listener) is not None
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=partition.leader if has_leader else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.eligible,
        last_known_elr=() if partition.last_leader == NO_LEADER else (partition.last_leader,),
        offline_replicas=partition.offline_replicas,
        awaited=() if wait is None else [member for member, _ in wait.members],
        statuses=() if wait is None else [status for _, status in wait.members],
        quorum=0 if wait is None else wait.quorum,
        is_waiting=wait is not None and wait.is_waiting,
    )
