"""RequestCommands (key 20003), version 0: a broker asks for all commands again (V35).

This API is tidelog's own; brokers serve and advertise it on the inter-broker listener only (G5). A
controller that accepts the request sends the requesting broker all commands again. Every broker but
the controller responds NOT_CONTROLLER. A request under an earlier registration of the broker gets
STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import CLUSTER_ACTION
from tidelog.wire.messages.request_commands import (
    RequestCommandsRequest,
    RequestCommandsResponse,
)

CARD = Card(
    api_key=20_003, min_version=0, max_version=0, inter_broker=True, rights=(CLUSTER_ACTION,)
)


def handle(
    context: ApiContext, request: Request[RequestCommandsRequest]
) -> RequestCommandsResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    message = request.message
    error = context.controller.commands_wanted(message.broker_id, message.broker_epoch)
    return RequestCommandsResponse(error_code=error)
