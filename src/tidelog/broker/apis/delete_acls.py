"""DeleteAcls (key 31), versions 1 to 3: refused.

Brokers have no authorizer; a Kafka broker without one responds SECURITY_DISABLED, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import NO_AUTHORIZER
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=31, min_version=1, max_version=3, refused="no access control")


def handle(context: ApiContext, request: Request[DeleteAclsRequest]) -> DeleteAclsResponse:
    """Refuse each filter."""
    return error_response(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def error_response(
    request: Request[DeleteAclsRequest], error: ErrorCode, message: str | None = None
) -> DeleteAclsResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error, message) for _ in request.message.filters]
    )
