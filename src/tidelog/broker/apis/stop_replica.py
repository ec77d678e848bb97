"""StopReplica (key 5), versions 3 and 4: the controller stops or deletes replicas.

A stopped replica loses its role. If the command asks for deletion, the broker renames the replica's
directory at once and removes it later (V34). A broker executes the command for a replica if the
command's leader epoch is not below the replica's leader epoch. Leader epoch -2 means that the topic
is deleted, and the broker always executes it (V30). A replica that the broker does not have gets no
error. The broker refuses a whole StopReplica request for the same reasons as a LeaderAndIsr
request.
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
