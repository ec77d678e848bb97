"""ListStrays (key 20001), version 0: the replicas that this broker has set aside (V35).

tidelog's own API, served and advertised on the listener between brokers only (G5). Each directory
has its own error: KAFKA_STORAGE_ERROR where it cannot be read.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DESCRIBE_CLUSTER
from tidelog.wire.messages.list_strays import ListStraysRequest

CARD = Card(api_key=20_001, min_version=0, max_version=0, rights=(DESCRIBE_CLUSTER,))


def handle(context: ApiContext, request: Request[ListStraysRequest]) -> Pending:
    """Look at each directory."""
    return context.dispatcher.answer_from(context.strays.list(), request)
