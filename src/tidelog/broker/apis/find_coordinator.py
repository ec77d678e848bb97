"""FindCoordinator (key 10), versions 0 to 4.

Not supported yet: groups and transactions. Every key is answered COORDINATOR_NOT_AVAILABLE, which
clients retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=10, min_version=0, max_version=4, note="no coordinators yet")

_MESSAGE = "this broker has no group or transaction coordinator yet"
_BATCHED_VERSION = 4


def handle(broker: Broker, request: Request) -> FindCoordinatorResponse:
    """COORDINATOR_NOT_AVAILABLE for every key."""
    message: FindCoordinatorRequest = request.message
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.header.api_version < _BATCHED_VERSION:
        text = _MESSAGE if request.header.api_version >= 1 else None
        return FindCoordinatorResponse(
            error_code=error, error_message=text, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key, -1, "", -1, error, _MESSAGE) for key in message.coordinator_keys
        ]
    )
