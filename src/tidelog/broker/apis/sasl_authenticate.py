"""SaslAuthenticate (key 36), versions 0 to 2: refused.

Listeners are PLAINTEXT. A Kafka broker responds ILLEGAL_SASL_STATE, too, on such a listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.apis.support.unserved import PLAINTEXT_LISTENER
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=36, min_version=0, max_version=2, refused="no authentication: listeners are PLAINTEXT"
)


def handle(
    context: ApiContext, request: Request[SaslAuthenticateRequest]
) -> SaslAuthenticateResponse:
    """Refuse the token."""
    answer: SaslAuthenticateResponse = error_response(
        request, ErrorCode.ILLEGAL_SASL_STATE, PLAINTEXT_LISTENER
    )
    return answer
