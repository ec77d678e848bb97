"""LeaveGroup (key 13), versions 0 to 5: members leave, or an administrator removes them.

From version 3 on a request has many members, each with its own error. Before, the error of the only
member is that of the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.server.requests import Card, Request
from tidelog.group.answers import LeaveAnswer
from tidelog.group.requests import LeaveAsked, MemberIdentity
from tidelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=13, min_version=0, max_version=5)

_MANY_MEMBERS_VERSION = 3


def handle(context: ApiContext, request: Request[LeaveGroupRequest]) -> Any:
    """Ask the group's coordinator."""
    message = request.message
    many = request.header.api_version >= _MANY_MEMBERS_VERSION
    if many:
        members = tuple(
            MemberIdentity(each.member_id, each.group_instance_id) for each in message.members
        )
    else:
        members = (MemberIdentity(message.member_id),)
    asked = LeaveAsked(context.groups.ticket(), message.group_id, members)
    return context.groups.answer(request, asked, lambda answer: _response(answer, many))


def _response(answer: LeaveAnswer, many: bool) -> LeaveGroupResponse:
    error = answer.error
    if many:
        members = [
            MemberResponse(each.member_id, each.instance_id, each.error) for each in answer.members
        ]
        return LeaveGroupResponse(error_code=error, members=members)
    if not error and answer.members:
        error = answer.members[0].error
    return LeaveGroupResponse(error_code=error)
