"""ListPartitionReassignments (key 46), version 0: the ongoing reassignments (KIP-455).

The response omits partitions that are not being reassigned, do not exist, or whose topic is being
deleted. Every broker but the controller responds NOT_CONTROLLER for the whole request. A controller
that cannot reach its metadata store responds REQUEST_TIMED_OUT, because another controller may have
been elected, and may have begun or ended reassignments.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DESCRIBE_CLUSTER
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

CARD = Card(api_key=46, min_version=0, max_version=0, rights=(DESCRIBE_CLUSTER,))


def handle(
    context: ApiContext, request: Request[ListPartitionReassignmentsRequest]
) -> Pending | ListPartitionReassignmentsResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    ask = partial(context.controller.ask, request.message)
    return context.store_trouble.guard(request, ask, request.message.timeout_ms)
