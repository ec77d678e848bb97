"""LeaderAndIsr (key 4), versions 4 to 7; from the controller.

Carries leader, ISR and replicas of partitions with a replica on this broker (V30, V31, V33). Each
partition has its own outcome. A full request (type 2) lists every replica of this broker: unlisted
ones are strays (V35). The broker refuses a whole request of an older controller
(STALE_CONTROLLER_EPOCH) or for an earlier registration of this broker (STALE_BROKER_EPOCH). It also
refuses a command that comes behind a later one of the same controller (OPERATION_NOT_ATTEMPTED).
Not supported: the lists of adding and removing replicas, which the broker ignores.
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
    """Carry the command out after earlier ones; respond when the roles are taken."""
    if context.replicas.is_overtaken(request):
        return LeaderAndIsrResponse(error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
    return context.dispatcher.answer_from(
        context.commands.leader_and_isr(request.message, request.header.api_version),
        request,
    )
