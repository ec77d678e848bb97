"""RelinquishLeadership (key 20005), version 0: replicas with slow reads or damage step back.

Leaders with slow reads give up their leadership (F11), members of the ISR with a damaged log leave
it (V68). tidelog's own API, served and advertised on the listener between brokers only (G5). The
controller responds when the new leaders are durable. Any other broker responds NOT_CONTROLLER.
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
    """Ask the controller, if that is this broker."""
    return context.controller.ask(
        request.message,
        lambda: RelinquishLeadershipResponse(error_code=ErrorCode.NOT_CONTROLLER),
    )
