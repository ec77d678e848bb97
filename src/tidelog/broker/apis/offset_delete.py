"""OffsetDelete (key 47), version 0: forget offsets of a group (KIP-496).

The coordinator refuses topics that a member subscribes to (GROUP_SUBSCRIBED_TO_TOPIC), and
partitions that this broker does not know (UNKNOWN_TOPIC_OR_PARTITION).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.answers import OffsetDeleteAnswer
from tidelog.group.requests import OffsetDeleteAsked
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=47, min_version=0, max_version=0)


def handle(context: ApiContext, request: Request[OffsetDeleteRequest]) -> Any:
    """Ask the group's coordinator about the partitions that exist."""
    message = request.message
    known = tuple(
        topic_partition
        for topic in message.topics
        for each in topic.partitions
        if context.services.view.partition(
            topic_partition := TopicPartition(topic.name, each.partition_index)
        )
        is not None
    )
    asked = OffsetDeleteAsked(context.groups.ticket(), message.group_id, known)
    return context.groups.answer(request, asked, lambda answer: _response(message, answer))


def _response(message: OffsetDeleteRequest, answer: OffsetDeleteAnswer) -> OffsetDeleteResponse:
    if answer.error:
        return OffsetDeleteResponse(error_code=answer.error)
    errors = dict(answer.partitions)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
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
