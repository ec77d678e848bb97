"""OffsetFetch (key 9), versions 1 to 9: the committed offsets of groups.

A request names one group, and from version 8 on several groups (KIP-709). Offset -1 without an
error means that the group committed no offset since the topic was last created under this name.
Transactions are not supported yet, so every committed offset is stable and `require_stable` has no
effect.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_GROUP, DESCRIBE_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

CARD = Card(
    api_key=9,
    min_version=1,
    max_version=9,
    note="no transactions yet",
    rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
)

_GROUP_ERROR_VERSION = 2
_MANY_GROUPS_VERSION = 8


def handle(context: ApiContext, request: Request[OffsetFetchRequest]) -> Any:
    """Ask the coordinator of each group; if two entries name one group, the last entry counts."""
    message = request.message
    if request.header.api_version < _MANY_GROUPS_VERSION:
        topics = None
        if message.topics is not None:
            topics = [
                OffsetFetchRequestTopics(topic.name, topic.partition_indexes)
                for topic in message.topics
            ]
        only = OffsetFetchRequestGroup(message.group_id, topics=topics)
        asked = context.groups.asked(request, message.group_id, only)
        return context.groups.answer(request, asked, lambda answer: _of_one(request, answer))
    groups = list({group.group_id: group for group in message.groups}.values())
    return context.groups.answer_all(
        request,
        [context.groups.asked(request, group.group_id, group) for group in groups],
        lambda answers: OffsetFetchResponse(groups=list(answers)),
    )


def _of_one(
    request: Request[OffsetFetchRequest], answer: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    if answer.error_code:
        refusal: OffsetFetchResponse = error_response(request, ErrorCode(answer.error_code))
        return refusal
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.metadata,
                        each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )
