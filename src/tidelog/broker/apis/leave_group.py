"""LeaveGroup (key 13), versions 0 to 5: members leave, or an administrator removes them.

From version 3 on, a request lists several members, each with its own error. Below version 3, a
request names one member, and the response has that member's error.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import READ_GROUP
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

CARD = Card(api_key=13, min_version=0, max_version=5, rights=(READ_GROUP,))

_MANY_MEMBERS_VERSION = 3


def handle(context: ApiContext, request: Request[LeaveGroupRequest]) -> Any:
    """Pass the request to the group's coordinator."""
    message, groups = request.message, context.groups
    if request.header.api_version >= _MANY_MEMBERS_VERSION:
        return groups.answer(request, groups.asked(request, message.group_id))
    message.members = [MemberIdentity(message.member_id)]
    return groups.answer(request, groups.asked(request, message.group_id), _of_one)


def _of_one(answer: LeaveGroupResponse) -> LeaveGroupResponse:
    members = answer.members
    error = answer.error_code or (members[0].error_code if members else ErrorCode.NONE)
    return LeaveGroupResponse(error_code=error)
