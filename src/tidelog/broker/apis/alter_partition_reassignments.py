"""AlterPartitionReassignments (key 45), versions 0 and 1: move partitions (V50 to V52, KIP-455).

Answered when every move is durable and its replicas were told; each partition by itself. Every
replica of the target must be alive. Another target for a partition that is being moved takes the
place of the first, unless that is being completed: REASSIGNMENT_IN_PROGRESS. Replicas null move a
partition back to those that it had, in their order; the move back takes as long as one of them is
out of sync. Any other broker than the controller answers NOT_CONTROLLER for the whole.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=45, min_version=0, max_version=1)


def handle(
    context: ApiContext, request: Request[AlterPartitionReassignmentsRequest]
) -> Pending | AlterPartitionReassignmentsResponse:
    """Ask the controller, if that is this broker."""
    ask = partial(context.controller.reassign, request.message)
    return context.store_trouble.watch(request, ask, request.message.timeout_ms)
