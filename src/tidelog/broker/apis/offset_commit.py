"""OffsetCommit (key 8), versions 2 to 9: store a group's offsets.

The coordinator responds when all in-sync replicas have the offsets (G1), or after
`offsets.commit.timeout.ms`. A partition that this broker does not know gets
UNKNOWN_TOPIC_OR_PARTITION. The coordinator commits the offsets of all known partitions together; if
it cannot, all these partitions get the same error.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import READ_GROUP, READ_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.group.asked import committed_keys
from tidelog.wire.messages.offset_commit import OffsetCommitRequest

CARD = Card(api_key=8, min_version=2, max_version=9, rights=(READ_GROUP, READ_TOPIC))


def handle(context: ApiContext, request: Request[OffsetCommitRequest]) -> Any:
    """Pass the known partitions of the request to the group's coordinator, if there are any."""
    view, message = context.services.view, request.message
    if all(view.partition(key) is None for key in committed_keys(message)):
        return error_response(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return context.groups.answer(request, context.groups.asked(request, message.group_id))
