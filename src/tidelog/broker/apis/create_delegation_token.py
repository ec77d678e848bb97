"""CreateDelegationToken (key 38), versions 1 to 3: refused.

DELEGATION_TOKEN_REQUEST_NOT_ALLOWED is what a Kafka broker answers on a PLAINTEXT listener: the
client is not authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import refuse
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.create_delegation_token import CreateDelegationTokenResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(
    api_key=38, min_version=1, max_version=3, refused="no authentication: listeners are PLAINTEXT"
)


def handle(broker: Broker, request: Request) -> CreateDelegationTokenResponse:
    """Refuse; the owner is who a PLAINTEXT client is."""
    answer: CreateDelegationTokenResponse = refuse(
        request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    )
    return answer
