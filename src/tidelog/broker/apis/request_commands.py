"""RequestCommands (key 20003), version 0: a broker requests all of its commands again (V35).

tidelog's own API, served and advertised on the listener between brokers only (G5). The controller
sends the broker a full command. Any other broker responds NOT_CONTROLLER. A registration that is
not the broker's present one gets STALE_BROKER_EPOCH.
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
    """Pass the request to the controller, if that is this broker."""
    message = request.message
    error = context.controller.commands_wanted(message.broker_id, message.broker_epoch)
    return RequestCommandsResponse(error_code=error)
