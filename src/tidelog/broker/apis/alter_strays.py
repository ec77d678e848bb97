"""AlterStrays (key 20002), version 0: delete or restore stray replicas (V35).

This API is tidelog's own; brokers serve and advertise it on the inter-broker listener only (G5). A
stray is a replica that the controller's commands no longer list; the broker keeps the stray's files
under another name. Each stray has its own outcome. The broker asks the controller for the role of a
restored stray. A stray without the file that records its flushed offset can only be deleted,
because restoring it is not supported.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import ALTER_CLUSTER
from tidelog.wire.messages.alter_strays import AlterStraysRequest

CARD = Card(api_key=20_002, min_version=0, max_version=0, rights=(ALTER_CLUSTER,))


def handle(context: ApiContext, request: Request[AlterStraysRequest]) -> Pending:
    """Alter the strays one by one; no command of the controller runs at the same time."""
    return context.dispatcher.answer_from(context.strays.alter(request.message), request)
