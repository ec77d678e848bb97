"""ControlledShutdown (key 7), versions 0 to 3: a stopping broker gives up its leaderships (V43).

Only brokers send this request. The controller responds when the new leaders, and the ISRs without
the broker, are durable. Before the response the controller also waits until all brokers have
acknowledged their commands, for a second at most. The response lists partitions that the stopping
broker still leads, and for which another replica only has to catch up before it can lead. Every
broker but the controller responds NOT_CONTROLLER. Requests of versions 0 and 1 carry no broker
epoch, so the controller cannot fence a request of an earlier registration in these versions.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import CLUSTER_ACTION
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

CARD = Card(api_key=7, min_version=0, max_version=3, inter_broker=True, rights=(CLUSTER_ACTION,))


def handle(
    context: ApiContext, request: Request[ControlledShutdownRequest]
) -> Pending | ControlledShutdownResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    return context.controller.ask(
        request.message,
        lambda: ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER),
    )
