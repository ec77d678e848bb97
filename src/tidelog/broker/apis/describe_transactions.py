"""DescribeTransactions (key 65), version 0: no transactional id is known.

TRANSACTIONAL_ID_NOT_FOUND is what a Kafka broker answers for an id that it never saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import refuse
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_transactions import DescribeTransactionsResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=65, min_version=0, max_version=0)


def handle(broker: Broker, request: Request) -> DescribeTransactionsResponse:
    """Answer each id."""
    answer: DescribeTransactionsResponse = refuse(request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return answer
