"""AlterPartitionReassignments (key 45), versions 0 and 1: move partitions (V50 to V52, KIP-455).

The controller responds when every move is durable and the brokers have acknowledged its commands;
it waits for these acknowledgements for a second at most. The response has an outcome for each
partition. Every replica of a target assignment must be alive. A new target replaces the target of a
reassignment in progress, unless the controller is already completing that reassignment
(REASSIGNMENT_IN_PROGRESS). Null replicas cancel a reassignment: the partition returns to its
original replicas, in their order. A cancellation is complete when all original replicas are in
sync. Every broker but the controller responds NOT_CONTROLLER for the whole request.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import ALTER_CLUSTER
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

CARD = Card(api_key=45, min_version=0, max_version=1, rights=(ALTER_CLUSTER,))


def handle(
    context: ApiContext, request: Request[AlterPartitionReassignmentsRequest]
) -> Pending | AlterPartitionReassignmentsResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    ask = partial(context.controller.ask, request.message)
    return context.store_trouble.watch(request, ask, request.message.timeout_ms)
