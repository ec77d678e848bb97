"""DescribeTransactions (key 65), version 0: every transactional id is unknown.

A Kafka broker also responds TRANSACTIONAL_ID_NOT_FOUND for an id that it has never seen.
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
    """Return an error for each id."""
    answer: DescribeTransactionsResponse = error_response(
        request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    )
    return answer
