"""DescribeLogDirs (key 35), versions 1 to 4: log directories and the replicas in them (D11).

The response has the size of each replica in bytes, and its lag: the records by which its log end is
behind its high watermark. A future replica is the copy in the directory to which a replica moves.
The lag of a future replica counts from the log end of the current replica, and is -1 if the
directory of the current replica has failed. A directory that has failed or is unreadable is listed
with KAFKA_STORAGE_ERROR and without replicas, as in Kafka. For a directory that failed while the
broker ran, a tagged field lists the replicas that the directory held at that time. From version 4
on, a directory also has the size and the free space of its volume (KIP-827).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DESCRIBE_CLUSTER
from tidelog.core.errors import ErrorCode, StorageError
from tidelog.core.log_dir_keys import is_cordoned
from tidelog.core.ports import Files, VolumeSize, Work
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.core.types import TopicPartition
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import PartitionLog

CARD = Card(api_key=35, min_version=1, max_version=4, rights=(DESCRIBE_CLUSTER,))

_LOG_DIRS_ERROR_VERSION = 3
#: The lag of a replica whose lag cannot be computed (Kafka's INVALID_OFFSET_LAG).
_UNKNOWN_LAG = -1
_UNKNOWN_SIZE = VolumeSize(-1, -1)


def handle(context: ApiContext, request: Request[DescribeLogDirsRequest]) -> Pending:
    """Describe each log directory."""
    return context.dispatcher.answer_from(_describe(context, request.message), request)


async def _describe(
    context: ApiContext, message: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted: dict[tuple[str, int], None] | None = None
    if message.topics is not None:
        wanted = {
            (topic.topic, number): None for topic in message.topics for number in topic.partitions
        }
    response = DescribeLogDirsResponse()
    for directory in context.replicas.directories:
        config = context.services.config
        result = DescribeLogDirsResult(
            log_dir=directory.path,
            is_read_only=directory.space.is_full,
            is_cordoned=is_cordoned(directory.path, config.cordoned_log_dirs),
            is_slow=directory.speed.is_slow,
            is_draining=directory.path in config.draining_log_dirs,
        )
        try:
            result.total_bytes, result.usable_bytes = await _volume_size(directory)
        except StorageError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            result.last_known = _last_known(_held(context, directory.path), wanted)
        if directory.path in context.replicas.failed:
            continue  # failed at run time: the end of this function adds it
        response.results.append(result)
        if result.error_code:
            continue
        topics: dict[str, DescribeLogDirsTopic] = {}
        for partition in context.replicas.all():
            name, number = partition.topic_partition
            if partition.directory is directory and (wanted is None or (name, number) in wanted):
                topic = topics.setdefault(name, DescribeLogDirsTopic(name, []))
                topic.partitions.append(_result_of(number, partition))
        for key, future in directory.future_logs.found.items():
            if wanted is None or key in wanted:
                topic = topics.setdefault(key.topic, DescribeLogDirsTopic(key.topic, []))
                present = context.replicas.get(key)
                topic.partitions.append(_result_of_future(key.partition, future, present))
        result.topics = list(topics.values())
    response.results += [
        DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR,
            log_dir=path,
            last_known=_last_known(_held(context, path), wanted),
        )
        for path in context.replicas.failed
    ]
    return response


def _held(context: ApiContext, path: str) -> dict[TopicPartition, int]:
    """Return the sizes of a directory's logs; if the directory failed, their last known sizes."""
    held = {
        partition.topic_partition: partition.log.size_bytes
        for partition in context.replicas.all()
        if partition.directory.path == path
    }
    return {**context.replicas.log_dirs.held_by_failed(path), **held}


def _last_known(
    held: Mapping[TopicPartition, int], wanted: Container[tuple[str, int]] | None
) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for key, size_bytes in held.items():
        if wanted is None or key in wanted:
            topic = topics.setdefault(key.topic, DescribeLogDirsTopic(key.topic, []))
            topic.partitions.append(
                DescribeLogDirsPartition(key.partition, size_bytes, _UNKNOWN_LAG)
            )
    return list(topics.values())


async def _volume_size(directory: LogDirectory) -> VolumeSize:
    """Return size and free bytes of the volume; last known values for a slow directory (D13).

    A read of a slow directory's volume would wait for earlier file operations, longer than the
    client waits for the response.
    """
    path = directory.path
    if directory.speed.is_slow:
        return directory.space.free.volume or _UNKNOWN_SIZE

    def look(files: Files) -> VolumeSize:
        return files.volume_size(path)

    return await directory.lane.submit(look, Work.SLOW, "volume_size")


def _result_of(number: int, partition: Partition) -> DescribeLogDirsPartition:
    log = partition.log
    return DescribeLogDirsPartition(
        partition_index=number,
        partition_size=log.size_bytes,
        offset_lag=max(0, partition.high_watermark - log.log_end_offset),
    )


def _result_of_future(
    number: int, log: PartitionLog, present: Partition | None
) -> DescribeLogDirsPartition:
    lag = _UNKNOWN_LAG if present is None else present.log.log_end_offset - log.log_end_offset
    return DescribeLogDirsPartition(
        partition_index=number,
        partition_size=log.size_bytes,
        offset_lag=lag,
        is_future_key=True,
    )


def error_response(
    request: Request[DescribeLogDirsRequest], error: ErrorCode, message: str | None = None
) -> DescribeLogDirsResponse:
    """Return a response with `error` in its top-level field, if the version has that field.

    Versions below 3 carry the error in a result whose directory name is empty.
    """
    if request.header.api_version >= _LOG_DIRS_ERROR_VERSION:
        return DescribeLogDirsResponse(error_code=error)
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=error, log_dir="")])
