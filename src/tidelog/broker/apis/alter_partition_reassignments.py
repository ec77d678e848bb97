"""AlterPartitionReassignments (key 45), versions 0 and 1: move partitions (V50 to V52, KIP-455).

The controller responds when every move is durable and the brokers have taken its commands (or a
second later), with an outcome for each partition. Every replica of the target must be alive. A new
target replaces the one of a move under way, unless that move is being completed:
REASSIGNMENT_IN_PROGRESS. Replicas null move a partition back to its former replicas, in their
order. The move back lasts while one of them is out of sync. Any other broker responds
NOT_CONTROLLER for the whole.
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
    """Ask the controller, if that is this broker."""
    ask = partial(context.controller.ask, request.message)
    return context.store_trouble.watch(request, ask, request.message.timeout_ms)
