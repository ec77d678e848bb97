"""DescribeGroups (key 15), versions 0 to 5: state and members of groups.

An unknown group has the state Dead and no error. If the request asks for authorized operations, the
response has them for every group without an error (KIP-430).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.broker.apis.support.authorized_operations import GROUP_OPERATIONS
from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_GROUP
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

CARD = Card(api_key=15, min_version=0, max_version=5, rights=(DESCRIBE_GROUP,))


def handle(context: ApiContext, request: Request[DescribeGroupsRequest]) -> Any:
    """Ask the coordinator of each group; a group named twice is described once."""
    message = request.message
    groups = list(dict.fromkeys(message.groups))
    return context.groups.answer_all(
        request,
        [context.groups.asked(request, group_id) for group_id in groups],
        lambda answers: _response(answers, message.include_authorized_operations),
    )


def _response(
    groups: Sequence[DescribedGroup], include_authorized_operations: bool
) -> DescribeGroupsResponse:
    for group in groups:
        if include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=list(groups))
