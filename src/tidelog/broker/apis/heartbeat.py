"""Heartbeat (key 12), versions 0 to 4: a member of a group reports that it is alive.

A member that gets REBALANCE_IN_PROGRESS must join the group again. UNKNOWN_MEMBER_ID,
ILLEGAL_GENERATION and FENCED_INSTANCE_ID mean that the client is no longer a member. While the
coordinator is loading the group, it responds without an error, so the member stays.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import READ_GROUP
from tidelog.wire.messages.heartbeat import HeartbeatRequest

CARD = Card(api_key=12, min_version=0, max_version=4, rights=(READ_GROUP,))


def handle(context: ApiContext, request: Request[HeartbeatRequest]) -> Any:
    """Pass the request to the group's coordinator."""
    groups = context.groups
    return groups.answer(request, groups.asked(request, request.message.group_id))
