"""AllocateProducerIds (key 67), version 0: the controller grants a block of producer ids (G3).

Only brokers send this request. The controller responds when the block is durable in
`/latest_producer_id_block`. Every broker but the controller responds NOT_CONTROLLER.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import CLUSTER_ACTION
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

CARD = Card(api_key=67, min_version=0, max_version=0, inter_broker=True, rights=(CLUSTER_ACTION,))


def handle(
    context: ApiContext, request: Request[AllocateProducerIdsRequest]
) -> Pending | AllocateProducerIdsResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    return context.controller.ask(
        request.message,
        lambda: AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER),
    )
