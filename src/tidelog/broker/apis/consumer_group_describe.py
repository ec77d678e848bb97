"""ConsumerGroupDescribe (key 69), version 0: refused.

Groups have the classic protocol only. A Kafka 3.9 broker responds UNSUPPORTED_VERSION too while the
new protocol is disabled, as it is by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import CLASSIC_GROUPS
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=69,
    min_version=0,
    max_version=0,
    refused="groups of the classic protocol only (KIP-848)",
)


def handle(
    context: ApiContext, request: Request[ConsumerGroupDescribeRequest]
) -> ConsumerGroupDescribeResponse:
    """Refuse each group; clients then ask DescribeGroups."""
    return error_response(request, ErrorCode.UNSUPPORTED_VERSION, CLASSIC_GROUPS)


def error_response(
    request: Request[ConsumerGroupDescribeRequest], error: ErrorCode, message: str | None = None
) -> ConsumerGroupDescribeResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(error_code=error, error_message=message, group_id=group_id)
            for group_id in request.message.group_ids
        ]
    )
