"""OffsetFetch (key 9), versions 1 to 9: how far groups have read.

A request asks for one group, from version 8 on for many (KIP-709). Offset -1 without an error means
that the partition has no committed offset, or none since its topic was created under this name.
There are no transactions yet, so every committed offset is stable (`require_stable` changes
nothing).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.broker.coordinators.recreated_topics import has_ended
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.answers import FetchedOffset, OffsetFetchAnswer
from tidelog.group.requests import OffsetFetchAsked
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=9, min_version=1, max_version=9, note="no transactions yet")

_FETCHED_GROUPS_VERSION = 8
_GROUP_ERROR_VERSION = 2
_MANY_GROUPS_VERSION = 8
_Topics = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None


def handle(context: ApiContext, request: Request[OffsetFetchRequest]) -> Any:
    """Ask the coordinator of each group; for a group named twice, the last entry counts."""
    message = request.message
    if request.header.api_version < _MANY_GROUPS_VERSION:
        asked = _asked(context, message.group_id, message.topics)
        version = request.header.api_version
        return context.groups.answer(
            request, asked, lambda answer: _response(message, _present(context, answer), version)
        )
    groups = list({group.group_id: group for group in message.groups}.values())
    return context.groups.answer_all(
        request,
        [_asked(context, group.group_id, group.topics) for group in groups],
        lambda answers: OffsetFetchResponse(
            groups=[
                _group(group.group_id, _present(context, answer))
                for group, answer in zip(groups, answers, strict=True)
            ]
        ),
    )


def _asked(context: ApiContext, group_id: str, topics: _Topics) -> OffsetFetchAsked:
    partitions = None
    if topics is not None:
        partitions = tuple(
            TopicPartition(topic.name, index)
            for topic in topics
            for index in topic.partition_indexes
        )
    return OffsetFetchAsked(context.groups.ticket(), group_id, partitions)


def _present(context: ApiContext, answer: OffsetFetchAnswer) -> OffsetFetchAnswer:
    """Return the answer without offsets of earlier topics of a name, or removed partitions (G6).

    Their tombstones may not be written yet.
    """
    view = context.services.view
    offsets = tuple(
        FetchedOffset(each.topic_partition)
        if has_ended(view, each.topic_partition, each.incarnation)
        else each
        for each in answer.offsets
    )
    return OffsetFetchAnswer(answer.error, offsets)


def _by_topic(offsets: Sequence[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    for offset in offsets:
        topics.setdefault(offset.topic_partition.topic, []).append(offset)
    return topics


def _response(
    message: OffsetFetchRequest, answer: OffsetFetchAnswer, version: int
) -> OffsetFetchResponse:
    error = answer.error
    offsets: Sequence[FetchedOffset] = answer.offsets
    if error and version < _GROUP_ERROR_VERSION:
        # The response has no other place for it than each requested partition.
        offsets = [
            FetchedOffset(TopicPartition(topic.name, index))
            for topic in message.topics or ()
            for index in topic.partition_indexes
        ]
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(
                topic,
                [
                    OffsetFetchResponsePartition(
                        each.topic_partition.partition,
                        each.offset,
                        each.leader_epoch,
                        each.metadata,
                        error,
                    )
                    for each in found
                ],
            )
            for topic, found in _by_topic(offsets).items()
        ],
    )


def _group(group_id: str, answer: OffsetFetchAnswer) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id,
        [
            OffsetFetchResponseTopics(
                topic,
                [
                    OffsetFetchResponsePartitions(
                        each.topic_partition.partition,
                        each.offset,
                        each.leader_epoch,
                        each.metadata,
                        ErrorCode.NONE,
                    )
                    for each in found
                ],
            )
            for topic, found in _by_topic(answer.offsets).items()
        ],
        answer.error,
    )


def error_response(
    request: Request[OffsetFetchRequest], error: ErrorCode, message: str | None = None
) -> OffsetFetchResponse:
    """Return `error` by group or partition; version 1 has no error of the whole group."""
    version = request.header.api_version
    if version >= _FETCHED_GROUPS_VERSION:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group.group_id, error_code=error)
                for group in request.message.groups
            ]
        )
    topics = () if version >= _GROUP_ERROR_VERSION else request.message.topics or ()
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(index, -1, -1, "", error)
                    for index in topic.partition_indexes
                ],
            )
            for topic in topics
        ],
    )
