"""StopReplica (key 5), versions 3 and 4: the controller stops or deletes replicas.

A stopped replica loses its role. If the command says so, the broker deletes the replica: its
directory is renamed first and removed later (V34). A replica obeys a command with its own leader
epoch or a later epoch, and always epoch -2, which means the deletion of the topic (V30). A missing
replica is no error. The broker refuses a whole StopReplica request for the same reasons as a
LeaderAndIsr request.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import CLUSTER_ACTION
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

CARD = Card(api_key=5, min_version=3, max_version=4, inter_broker=True, rights=(CLUSTER_ACTION,))


def handle(
    context: ApiContext, request: Request[StopReplicaRequest]
) -> StopReplicaResponse | Pending:
    """Execute the command after all earlier commands; respond when the replicas are stopped."""
    if context.replicas.is_overtaken(request):
        return StopReplicaResponse(error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
    return context.dispatcher.answer_from(context.commands.stop_replica(request.message), request)
