"""SyncGroup (key 14), versions 0 to 5: the group's leader sends, and members get, assignments.

The coordinator responds when all in-sync replicas have the generation. From version 5 on, the
coordinator responds INCONSISTENT_GROUP_PROTOCOL if the request's protocol type or name differs from
the group's (KIP-559). The coordinator ignores assignments for clients that are no members of the
group.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import READ_GROUP
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

CARD = Card(api_key=14, min_version=0, max_version=5, rights=(READ_GROUP,))

_PROTOCOL_VERSION = 5


def handle(context: ApiContext, request: Request[SyncGroupRequest]) -> Any:
    """Pass the request to the group's coordinator."""
    message = request.message
    names_protocol = message.protocol_type is not None and message.protocol_name is not None
    if request.header.api_version >= _PROTOCOL_VERSION and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return context.groups.answer(request, context.groups.asked(request, message.group_id))
