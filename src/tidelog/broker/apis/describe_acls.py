"""DescribeAcls (key 29), versions 1 to 3: refused.

Brokers have no authorizer; a Kafka broker without one responds SECURITY_DISABLED, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.apis.support.unserved import NO_AUTHORIZER
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=29, min_version=1, max_version=3, refused="no access control")


def handle(context: ApiContext, request: Request[DescribeAclsRequest]) -> DescribeAclsResponse:
    """Refuse the filter."""
    answer: DescribeAclsResponse = error_response(
        request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
    )
    return answer
