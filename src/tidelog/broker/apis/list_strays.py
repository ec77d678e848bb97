"""ListStrays (key 20001), version 0: the stray replicas of this broker (V35).

This API is tidelog's own; brokers serve and advertise it on the inter-broker listener only (G5). A
stray is a replica that the controller's commands no longer list; the broker keeps the stray's files
under another name. Each log directory has its own error: KAFKA_STORAGE_ERROR if the directory is
unreadable.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DESCRIBE_CLUSTER
from tidelog.wire.messages.list_strays import ListStraysRequest

CARD = Card(api_key=20_001, min_version=0, max_version=0, rights=(DESCRIBE_CLUSTER,))


def handle(context: ApiContext, request: Request[ListStraysRequest]) -> Pending:
    """List the strays of each log directory."""
    return context.dispatcher.answer_from(context.strays.list(), request)
