"""OffsetCommit (key 8), versions 2 to 9: remember how far a group has read.

The coordinator responds when the offsets are in all in-sync replicas (G1), or after
`offsets.commit.timeout.ms`. Each partition that this broker does not know gets
UNKNOWN_TOPIC_OR_PARTITION. The others are committed together, or refused with the one error of
their group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.coordinators.recreated_topics import incarnation
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.answers import OffsetCommitAnswer
from tidelog.group.requests import OffsetCommitAsked, OffsetToCommit
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=8, min_version=2, max_version=9)


def handle(context: ApiContext, request: Request[OffsetCommitRequest]) -> Any:
    """Ask the group's coordinator about the partitions that exist."""
    message = request.message
    known: list[OffsetToCommit] = []
    for topic in message.topics:
        for each in topic.partitions:
            topic_partition = TopicPartition(topic.name, each.partition_index)
            if context.services.view.partition(topic_partition) is not None:
                known.append(
                    OffsetToCommit(
                        topic_partition,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata or "",
                        incarnation(context.services.view, topic_partition),
                    )
                )
    if not known:
        return _response(message, OffsetCommitAnswer(()))
    asked = OffsetCommitAsked(
        context.groups.ticket(),
        message.group_id,
        tuple(known),
        message.generation_id_or_member_epoch,
        message.member_id,
        message.group_instance_id,
        message.retention_time_ms,
    )
    return context.groups.answer(request, asked, lambda answer: _response(message, answer))


def _response(message: OffsetCommitRequest, answer: OffsetCommitAnswer) -> OffsetCommitResponse:
    errors = dict(answer.partitions)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(
                        each.partition_index,
                        errors.get(
                            TopicPartition(topic.name, each.partition_index),
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def error_response(
    request: Request[OffsetCommitRequest], error: ErrorCode, message: str | None = None
) -> OffsetCommitResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(each.partition_index, error)
                    for each in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
    )
