"""LeaderAndIsr (key 4), versions 4 to 7; from the controller.

Leader, ISR and replicas of partitions that this broker holds a replica of (V30, V31, V33), one
outcome per partition, independent of each other. A full request (type 2) lists all there is to
hold: what it does not name is stray (V35). Refused whole: an older controller
(STALE_CONTROLLER_EPOCH), an earlier registration of this broker (STALE_BROKER_EPOCH), a command
that comes behind a later one of the same controller (OPERATION_NOT_ATTEMPTED).
Not supported: adding and removing replicas (reassignments come later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=4, min_version=4, max_version=7, inter_broker=True)


def handle(
    context: ApiContext, request: Request[LeaderAndIsrRequest]
) -> LeaderAndIsrResponse | Pending:
    """Carried out after the commands that came before; answered when the roles are taken."""
    if context.replicas.is_overtaken(request):
        return LeaderAndIsrResponse(error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
    return context.dispatcher.answer_from(
        context.commands.leader_and_isr(request.message, request.header.api_version),
        request,
    )
