"""RelinquishLeadership (key 20005), version 0: a broker gives up leaderships or leaves ISRs.

A leader with slow reads gives up its leadership (F11), and an ISR member with a damaged log leaves
the ISR (V68). This API is tidelog's own; brokers serve and advertise it on the inter-broker
listener only (G5). The controller responds when the new leaders are durable. Every broker but the
controller responds NOT_CONTROLLER.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import CLUSTER_ACTION
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)

CARD = Card(
    api_key=20_005, min_version=0, max_version=0, inter_broker=True, rights=(CLUSTER_ACTION,)
)


def handle(
    context: ApiContext, request: Request[RelinquishLeadershipRequest]
) -> Pending | RelinquishLeadershipResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    return context.controller.ask(
        request.message,
        lambda: RelinquishLeadershipResponse(error_code=ErrorCode.NOT_CONTROLLER),
    )
