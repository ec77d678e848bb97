"""SaslHandshake (key 17), versions 0 and 1: refused.

Listeners are PLAINTEXT. A Kafka broker responds ILLEGAL_SASL_STATE, too, on such a listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=17, min_version=0, max_version=1, refused="no authentication: listeners are PLAINTEXT"
)


def handle(context: ApiContext, request: Request[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    """Refuse the mechanism; none is enabled."""
    answer: SaslHandshakeResponse = error_response(request, ErrorCode.ILLEGAL_SASL_STATE)
    return answer
