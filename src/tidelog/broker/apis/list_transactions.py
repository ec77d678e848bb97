"""ListTransactions (key 66), versions 0 and 1: no transactions exist.

As in Kafka, the response repeats the request's state names that the broker does not know.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_TRANSACTIONAL_ID
from tidelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

CARD = Card(api_key=66, min_version=0, max_version=1, rights=(DESCRIBE_TRANSACTIONAL_ID,))

#: Kafka's names for the states of a transaction.
_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def handle(
    context: ApiContext, request: Request[ListTransactionsRequest]
) -> ListTransactionsResponse:
    """Return no transactions."""
    message = request.message
    unknown = [name for name in dict.fromkeys(message.state_filters) if name not in _STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)
