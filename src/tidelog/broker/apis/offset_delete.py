"""OffsetDelete (key 47), version 0: delete offsets of a group (KIP-496).

The coordinator refuses a topic that a member subscribes to (GROUP_SUBSCRIBED_TO_TOPIC), and a
partition that this broker does not know (UNKNOWN_TOPIC_OR_PARTITION).
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DELETE_GROUP, READ_TOPIC
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest

CARD = Card(api_key=47, min_version=0, max_version=0, rights=(DELETE_GROUP, READ_TOPIC))


def handle(context: ApiContext, request: Request[OffsetDeleteRequest]) -> Any:
    """Pass the request to the group's coordinator."""
    groups = context.groups
    return groups.answer(request, groups.asked(request, request.message.group_id))
