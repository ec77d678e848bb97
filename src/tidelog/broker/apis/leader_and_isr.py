"""LeaderAndIsr (key 4), versions 4 to 7: the controller assigns roles to replicas.

The request has leader, ISR and replicas of partitions that this broker hosts (V30, V31, V33). Each
partition has its own outcome. A full request (type 2) lists every replica of this broker, so the
broker sets its other replicas aside as strays (V35). The broker refuses a request of an older
controller (STALE_CONTROLLER_EPOCH), or for an earlier registration of this broker
(STALE_BROKER_EPOCH). The broker also refuses a command that arrives after a later command of the
same controller (OPERATION_NOT_ATTEMPTED). The broker ignores the lists of adding and removing
replicas.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import CLUSTER_ACTION
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

CARD = Card(api_key=4, min_version=4, max_version=7, inter_broker=True, rights=(CLUSTER_ACTION,))


def handle(
    context: ApiContext, request: Request[LeaderAndIsrRequest]
) -> LeaderAndIsrResponse | Pending:
    """Execute the command after earlier commands; respond when the replicas have their roles."""
    if context.replicas.is_overtaken(request):
        return LeaderAndIsrResponse(error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
    return context.dispatcher.answer_from(
        context.commands.leader_and_isr(request.message, request.header.api_version),
        request,
    )
