"""StopReplica (key 5), versions 3 and 4; from the controller.

Ends the role of replicas and deletes them where the command says so: the directory is renamed first
and removed later (V34). A replica obeys from its own leader epoch on, and always with epoch -2, the
deletion of the topic (V30). A missing replica is no error. The broker refuses a whole request as in
LeaderAndIsr.
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
    """Carry the command out after earlier ones; respond when the replicas are gone."""
    if context.replicas.is_overtaken(request):
        return StopReplicaResponse(error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
    return context.dispatcher.answer_from(context.commands.stop_replica(request.message), request)
