"""RenewDelegationToken (key 39), versions 1 and 2: refused.

A Kafka broker responds DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, too, on a PLAINTEXT listener: the
client is not authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=39, min_version=1, max_version=2, refused="no authentication: listeners are PLAINTEXT"
)

#: The value of a time that does not exist.
_NO_TIME = -1


def handle(
    context: ApiContext, request: Request[RenewDelegationTokenRequest]
) -> RenewDelegationTokenResponse:
    """Refuse the token."""
    return error_response(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def error_response(
    request: Request[RenewDelegationTokenRequest], error: ErrorCode, message: str | None = None
) -> RenewDelegationTokenResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return RenewDelegationTokenResponse(error, _NO_TIME)
