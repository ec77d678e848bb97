"""AlterPartition (key 56), versions 0 to 3: a leader asks the controller for new ISRs (A1-A4).

Only brokers send this request. The controller responds when the accepted changes are durable. Every
broker but the controller responds NOT_CONTROLLER.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import CLUSTER_ACTION
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

CARD = Card(api_key=56, min_version=0, max_version=3, inter_broker=True, rights=(CLUSTER_ACTION,))


def handle(
    context: ApiContext, request: Request[AlterPartitionRequest]
) -> Pending | AlterPartitionResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    return context.controller.alter_partition(
        request.message,
        request.header.api_version,
        lambda: AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
    )
