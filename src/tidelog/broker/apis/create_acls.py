"""CreateAcls (key 30), versions 1 to 3: refused.

Brokers have no authorizer; a Kafka broker without one responds SECURITY_DISABLED, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import NO_AUTHORIZER
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=30, min_version=1, max_version=3, refused="no access control")


def handle(context: ApiContext, request: Request[CreateAclsRequest]) -> CreateAclsResponse:
    """Refuse each entry."""
    return error_response(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def error_response(
    request: Request[CreateAclsRequest], error: ErrorCode, message: str | None = None
) -> CreateAclsResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return CreateAclsResponse(
        results=[AclCreationResult(error, message) for _ in request.message.creations]
    )
