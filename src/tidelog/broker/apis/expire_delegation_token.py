"""ExpireDelegationToken (key 40), versions 1 and 2: refused.

A Kafka broker responds DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, too, on a PLAINTEXT listener: the
client is not authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=40, min_version=1, max_version=2, refused="no authentication: listeners are PLAINTEXT"
)

#: The value of a time that does not exist.
_NO_TIME = -1


def handle(
    context: ApiContext, request: Request[ExpireDelegationTokenRequest]
) -> ExpireDelegationTokenResponse:
    """Refuse the token."""
    return error_response(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def error_response(
    request: Request[ExpireDelegationTokenRequest], error: ErrorCode, message: str | None = None
) -> ExpireDelegationTokenResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return ExpireDelegationTokenResponse(error, _NO_TIME)
