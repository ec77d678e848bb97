"""AlterReplicaLogDirs (key 34), versions 1 and 2: replicas move to other log directories (D11).

A replica without an error in the response has begun to move. Until the move has ended,
DescribeLogDirs lists the copy in the target directory as a future replica. The reason for an error
is in the broker's log. If this broker does not host the replica yet, the response is
REPLICA_NOT_AVAILABLE. The broker remembers the directory, and later creates the replica there, as
in Kafka (KIP-113).
"""

from __future__ import annotations

import logging

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.apis.support.errors import error_entries
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import ALTER_CLUSTER
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

CARD = Card(api_key=34, min_version=1, max_version=2, rights=(ALTER_CLUSTER,))


def handle(context: ApiContext, request: Request[AlterReplicaLogDirsRequest]) -> Pending:
    """Begin, replace or cancel moves of replicas between log directories.

    No command of the controller runs at the same time.
    """
    return context.dispatcher.answer_from(_alter(context, request.message), request)


async def _alter(
    context: ApiContext, message: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    async with context.replicas.command_order:
        for directory in message.dirs:
            for topic in directory.topics:
                result = results.setdefault(
                    topic.name, AlterReplicaLogDirTopicResult(topic.name, [])
                )
                for number in topic.partitions:
                    error = await _move(context, directory.path, TopicPartition(topic.name, number))
                    result.partitions.append(AlterReplicaLogDirPartitionResult(number, error))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


async def _move(context: ApiContext, path: str, topic_partition: TopicPartition) -> ErrorCode:
    try:
        await context.replicas.moves.move(topic_partition, path)
    except KafkaError as error:
        context.services.tracer.log(
            "request",
            logging.WARNING,
            f"partition {topic_partition!s:.300} does not move to {path!r:.300}:"
            f" {error.code.name}: {error.message}",
        )
        return error.code
    return ErrorCode.NONE


def error_response(
    request: Request[AlterReplicaLogDirsRequest], error: ErrorCode, message: str | None = None
) -> AlterReplicaLogDirsResponse:
    """Return `error` for each topic of each directory."""
    topics = [topic for directory in request.message.dirs for topic in directory.topics]
    return AlterReplicaLogDirsResponse(results=error_entries(request, topics, error, message))
