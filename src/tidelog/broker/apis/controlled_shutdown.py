"""ControlledShutdown (key 7), versions 0 to 3: a stopping broker gives up its leaderships (V43).

Inter-broker. The controller responds when the new leaders and the ISRs without the broker are
durable. It also waits until all brokers have taken their commands, a second at most. The response
lists the partitions that the broker still leads and that another replica could lead once it has
caught up. Any other broker responds NOT_CONTROLLER. Versions 0 and 1 carry no broker epoch, and are
not fenced by it.
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
    """Ask the controller, if that is this broker."""
    return context.controller.ask(
        request.message,
        lambda: ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER),
    )
