"""DescribeTransactions (key 65), version 0: no transactional id is known.

A Kafka broker responds TRANSACTIONAL_ID_NOT_FOUND, too, for an id that it never saw.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

CARD = Card(
    api_key=65, min_version=0, max_version=0, rights=(DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC)
)


def handle(
    context: ApiContext, request: Request[DescribeTransactionsRequest]
) -> DescribeTransactionsResponse:
    """Respond for each id."""
    answer: DescribeTransactionsResponse = error_response(
        request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    )
    return answer
