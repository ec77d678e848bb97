"""DescribeGroups (key 15), versions 0 to 5: state and members of groups.

An unknown group is Dead, without an error. Authorized operations come with every group without an
error, where the request asks for them (KIP-430).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.apis.support.authorized_operations import GROUP_OPERATIONS
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.group.answers import DescribeAnswer
from tidelog.group.requests import DescribeAsked
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=15, min_version=0, max_version=5)


def handle(context: ApiContext, request: Request[DescribeGroupsRequest]) -> Any:
    """Ask the coordinator of each group; a group named twice is described once."""
    message = request.message
    groups = list(dict.fromkeys(message.groups))
    version = request.header.api_version
    return context.groups.answer_all(
        request,
        [DescribeAsked(context.groups.ticket(), group_id, version) for group_id in groups],
        lambda answers: DescribeGroupsResponse(
            groups=[
                _described(group_id, answer, message.include_authorized_operations)
                for group_id, answer in zip(groups, answers, strict=True)
            ]
        ),
    )


def _described(
    group_id: str, answer: DescribeAnswer, include_authorized_operations: bool
) -> DescribedGroup:
    group = DescribedGroup(
        error_code=answer.error,
        group_id=group_id,
        group_state=answer.state,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol_name,
        members=[
            DescribedGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata,
                member.assignment,
            )
            for member in answer.members
        ],
    )
    if include_authorized_operations and answer.error == ErrorCode.NONE:
        group.authorized_operations = GROUP_OPERATIONS
    return group


def error_response(
    request: Request[DescribeGroupsRequest], error: ErrorCode, message: str | None = None
) -> DescribeGroupsResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(error_code=error, group_id=group_id)
            for group_id in request.message.groups
        ]
    )
