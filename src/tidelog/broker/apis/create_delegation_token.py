"""CreateDelegationToken (key 38), versions 1 to 3: refused.

A Kafka broker responds DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, too, on a PLAINTEXT listener: the
client is not authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=38, min_version=1, max_version=3, refused="no authentication: listeners are PLAINTEXT"
)

#: The value of a time that does not exist.
_NO_TIME = -1
#: The principal of clients on PLAINTEXT listeners, as Kafka names it.
_PRINCIPAL = ("User", "ANONYMOUS")
#: The first version whose response names the requester.
_REQUESTER_VERSION = 3


def handle(
    context: ApiContext, request: Request[CreateDelegationTokenRequest]
) -> CreateDelegationTokenResponse:
    """Refuse the token; its owner is the principal of a PLAINTEXT client."""
    return error_response(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def error_response(
    request: Request[CreateDelegationTokenRequest], error: ErrorCode, message: str | None = None
) -> CreateDelegationTokenResponse:
    """Return the response that gives `error` to everything that was asked for."""
    requester = _PRINCIPAL if request.header.api_version >= _REQUESTER_VERSION else ("", "")
    return CreateDelegationTokenResponse(
        error, *_PRINCIPAL, *requester, _NO_TIME, _NO_TIME, _NO_TIME
    )
