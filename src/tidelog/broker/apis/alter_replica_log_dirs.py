"""AlterReplicaLogDirs (key 34), versions 1 and 2: replicas stay in their log directories.

A replica that is in the directory already gets no error. The broker refuses a move with
UNSUPPORTED_VERSION, which clients do not retry, and logs it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=34, min_version=1, max_version=2, refused="replicas stay in their log directories"
)


def handle(
    context: ApiContext, request: Request[AlterReplicaLogDirsRequest]
) -> AlterReplicaLogDirsResponse:
    """Respond for each replica."""
    message = request.message
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name, []))
            for number in topic.partitions:
                error = _error(context, directory.path, TopicPartition(topic.name, number))
                result.partitions.append(AlterReplicaLogDirPartitionResult(number, error))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _error(context: ApiContext, path: str, topic_partition: TopicPartition) -> ErrorCode:
    if all(directory.path != path for directory in context.replicas.directories):
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = context.replicas.get(topic_partition)
    if partition is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    if partition.directory.path == path:
        return ErrorCode.NONE
    context.services.tracer.log(
        "request",
        logging.WARNING,
        f"partition {topic_partition}: the replica stays in {partition.directory.path}; "
        f"replicas do not move between log directories, and {path} was asked for",
    )
    return ErrorCode.UNSUPPORTED_VERSION


def error_response(
    request: Request[AlterReplicaLogDirsRequest], error: ErrorCode, message: str | None = None
) -> AlterReplicaLogDirsResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic.name,
                [AlterReplicaLogDirPartitionResult(number, error) for number in topic.partitions],
            )
            for directory in request.message.dirs
            for topic in directory.topics
        ]
    )
