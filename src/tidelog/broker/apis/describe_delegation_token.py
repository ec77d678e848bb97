"""DescribeDelegationToken (key 41), versions 1 to 3: refused.

A Kafka broker responds DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, too, on a PLAINTEXT listener: the
client is not authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=41, min_version=1, max_version=3, refused="no authentication: listeners are PLAINTEXT"
)


def handle(
    context: ApiContext, request: Request[DescribeDelegationTokenRequest]
) -> DescribeDelegationTokenResponse:
    """Refuse; there are no tokens."""
    answer: DescribeDelegationTokenResponse = error_response(
        request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    )
    return answer
