"""ListOffsets (key 2), versions 0 to 9: offsets by timestamp.

The response has the first offset whose record is not older than the given timestamp. Negative
timestamps have special meanings. Timestamp -1 means the latest offset, -2 the earliest, and -3 the
record with the largest timestamp (version 7). The record with the largest timestamp may lie below
the log start offset, as in Kafka. Timestamp -4 means the earliest offset on this broker (version
8). Timestamp -5 means the latest offset in remote storage (version 9), which tidelog lacks, so it
returns no offset. Consumers get offsets up to the high watermark, or with read_committed up to the
last stable offset (version 2). Until the high watermark reaches the start of the current leader
epoch, consumers get OFFSET_NOT_AVAILABLE (below version 5: LEADER_NOT_AVAILABLE, V36). Replicas get
offsets of the whole log. A partition that the request names twice gets INVALID_REQUEST. In version
0 the broker returns the first offsets of segments that were last written before the timestamp,
newest first. Transactions are not supported yet, so the last stable offset is the high watermark.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.apis.support.replica_ids import note_replica
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DESCRIBE_TOPIC
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.types import READ_COMMITTED, TopicPartition
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext
    from tidelog.broker.replicas.hosting.partition import Partition

CARD = Card(
    api_key=2, min_version=0, max_version=9, note="no transactions yet", rights=(DESCRIBE_TOPIC,)
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
#: The first version of the request that supports each negative timestamp code.
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_LEADER_EPOCH_VERSION = 4
_OFFSET_NOT_AVAILABLE_VERSION = 5
_CONSUMER_REPLICA_ID = -1
#: Number of partitions searched in one turn of the event loop, when no search waits for the disk.
_PER_TURN = 100


def handle(
    context: ApiContext, request: Request[ListOffsetsRequest]
) -> ListOffsetsResponse | Pending:
    """Respond at once if no timestamp needs a search in the log."""
    message = request.message
    note_replica(context.services, request, message.replica_id)
    repeated = _repeated(message)
    if request.header.api_version == 0:
        return _response(
            message,
            [
                [_segments(context, request, topic.name, asked) for asked in topic.partitions]
                for topic in message.topics
            ],
        )
    lookups = any(
        asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP
        for topic in message.topics
        for asked in topic.partitions
    )
    if lookups:
        return context.dispatcher.answer_from(_answer(context, request, repeated), request)
    return _response(
        message,
        [
            [
                _known(context, request, topic.name, asked)
                if (topic.name, asked.partition_index) not in repeated
                else _refused(asked)
                for asked in topic.partitions
            ]
            for topic in message.topics
        ],
    )


def _repeated(message: ListOffsetsRequest) -> set[tuple[str, int]]:
    """Return the partitions that a request names more than once.

    The broker refuses a partition that is named twice, as in Kafka, because one short request could
    otherwise cause any number of searches.
    """
    named = Counter(
        (topic.name, asked.partition_index)
        for topic in message.topics
        for asked in topic.partitions
    )
    return {partition for partition, count in named.items() if count > 1}


def _refused(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(asked.partition_index, error_code=ErrorCode.INVALID_REQUEST)


async def _answer(
    context: ApiContext, request: Request[ListOffsetsRequest], repeated: set[tuple[str, int]]
) -> ListOffsetsResponse:
    message = request.message
    answers = []
    searched = 0
    for topic in message.topics:
        of_topic = []
        for asked in topic.partitions:
            if (topic.name, asked.partition_index) in repeated:
                of_topic.append(_refused(asked))
                continue
            of_topic.append(await _looked_up(context, request, topic.name, asked))
            searched += 1
            if searched % _PER_TURN == 0:
                await context.services.tasks.sleep(0)
        answers.append(of_topic)
    return _response(message, answers)


def _response(
    message: ListOffsetsRequest, answers: list[list[ListOffsetsPartitionResponse]]
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(topic.name, partitions)
            for topic, partitions in zip(message.topics, answers, strict=True)
        ]
    )


def _leader(
    context: ApiContext,
    request: Request[ListOffsetsRequest],
    topic: str,
    asked: ListOffsetsPartition,
) -> tuple[Partition, LeaderReplica]:
    """Return the leader of a partition; raise KafkaError if this broker does not lead it."""
    since = _SINCE.get(asked.timestamp, 0 if asked.timestamp >= 0 else 0x7FFF)
    if request.header.api_version < since:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"timestamp {asked.timestamp} is not supported in ListOffsets version"
            f" {request.header.api_version}",
        )
    topic_partition = TopicPartition(topic, asked.partition_index)
    partition = context.replicas.get(topic_partition)
    if partition is None:
        raise KafkaError(context.replicas.missing_replica_error(topic_partition))
    error = partition.check_leader_epoch(asked.current_leader_epoch)
    if error:
        raise KafkaError(error)
    leadership = partition.leadership
    assert leadership is not None, "only a leader passes the check of the leader epoch"
    return partition, leadership


def _segments(
    context: ApiContext,
    request: Request[ListOffsetsRequest],
    topic: str,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    """Return first offsets of segments, for a consumer up to the high watermark (version 0)."""
    answer = ListOffsetsPartitionResponse(asked.partition_index)
    try:
        partition, role = _leader(context, request, topic, asked)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    offsets = partition.log.offsets_before(
        asked.timestamp, asked.max_num_offsets, context.services.clock.wall_ms()
    )
    if not _is_replica(request) and any(each > role.high_watermark for each in offsets):
        visible = [each for each in offsets if each <= role.high_watermark]
        offsets = [role.high_watermark, *visible]
    answer.old_style_offsets = offsets
    return answer


def _known(
    context: ApiContext,
    request: Request[ListOffsetsRequest],
    topic: str,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    """Return the earliest or latest offset, which needs no search in the log."""
    answer = ListOffsetsPartitionResponse(asked.partition_index)
    try:
        partition, role = _leader(context, request, topic, asked)
        log = partition.log
        if asked.timestamp == LATEST:
            _fill(answer, request, _end(partition, role, request), role.leader_epoch)
        elif asked.timestamp != LATEST_TIERED:
            start = log.log_start_offset
            _fill(answer, request, start, log.epochs.epoch_at(start))
    except KafkaError as error:
        answer.error_code = error.code
    return answer


async def _looked_up(
    context: ApiContext,
    request: Request[ListOffsetsRequest],
    topic: str,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    """Search the log by a timestamp; return the found record if the client may see it."""
    if asked.timestamp < 0 and asked.timestamp != MAX_TIMESTAMP:
        return _known(context, request, topic, asked)
    answer = ListOffsetsPartitionResponse(asked.partition_index)
    try:
        partition, role = _leader(context, request, topic, asked)
        end = _visible_end(partition, role, request)
        # The search covers the records below `end`, and ignores records that the leader appends
        # during the search.
        unknown = _unknown_end(partition, role, request)
        if asked.timestamp == MAX_TIMESTAMP:
            found = await partition.log.max_timestamp()
            if found is not None and found[1] >= end:
                found = None
        else:
            found = await partition.log.offset_for_timestamp(asked.timestamp, end)
        _check_still_leads(context, request, topic, asked, role)
        if found is not None:
            answer.timestamp, offset, leader_epoch = found
            _fill(answer, request, offset, leader_epoch)
        elif unknown is not None:
            raise unknown
    except KafkaError as error:
        answer.error_code = error.code
    except StorageError:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return answer


def _check_still_leads(
    context: ApiContext,
    request: Request[ListOffsetsRequest],
    topic: str,
    asked: ListOffsetsPartition,
    role: LeaderReplica,
) -> None:
    """Raise KafkaError if this broker lost the leadership after a search had begun.

    During the search this broker may have lost the leadership and truncated the found record.
    """
    partition, now = _leader(context, request, topic, asked)
    if now is not role:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"the leadership of {partition.topic_partition} changed during the search",
        )


def _fill(
    answer: ListOffsetsPartitionResponse,
    request: Request[ListOffsetsRequest],
    offset: int,
    leader_epoch: int,
) -> None:
    answer.offset = offset
    if request.header.api_version >= _LEADER_EPOCH_VERSION:
        answer.leader_epoch = leader_epoch


def _is_replica(request: Request[ListOffsetsRequest]) -> bool:
    return bool(request.message.replica_id != _CONSUMER_REPLICA_ID)


def _end(partition: Partition, role: LeaderReplica, request: Request[ListOffsetsRequest]) -> int:
    """Return the offset after the last record that the client may see (V36)."""
    unknown = _unknown_end(partition, role, request)
    if unknown is not None:
        raise unknown
    return _visible_end(partition, role, request)


def _visible_end(
    partition: Partition, role: LeaderReplica, request: Request[ListOffsetsRequest]
) -> int:
    """Return the end of the records that the client may see, as far as this leader knows."""
    if _is_replica(request):
        return role.log_end_offset
    if request.message.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return role.high_watermark


def _unknown_end(
    partition: Partition, role: LeaderReplica, request: Request[ListOffsetsRequest]
) -> KafkaError | None:
    """Return an error if this leader does not know yet up to which offset the client may read."""
    if _is_replica(request) or role.is_watermark_current:
        return None
    has_own_error = request.header.api_version >= _OFFSET_NOT_AVAILABLE_VERSION
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE if has_own_error else ErrorCode.LEADER_NOT_AVAILABLE,
        f"the high watermark of {partition.topic_partition} has not reached leader epoch "
        f"{role.leader_epoch} yet",
    )
