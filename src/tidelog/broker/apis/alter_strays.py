"""AlterStrays (key 20002), version 0: delete or restore replicas that were set aside (V35).

tidelog's own API, served and advertised on the listener between brokers only (G5). Each stray has
its own outcome. The broker asks the controller for the role of a restored one. Not supported:
strays without the file that records how far they were flushed can only be deleted.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import ALTER_CLUSTER
from tidelog.wire.messages.alter_strays import AlterStraysRequest

CARD = Card(api_key=20_002, min_version=0, max_version=0, rights=(ALTER_CLUSTER,))


def handle(context: ApiContext, request: Request[AlterStraysRequest]) -> Pending:
    """Alter one stray after the other, between two commands of the controller."""
    return context.dispatcher.answer_from(context.strays.alter(request.message), request)
