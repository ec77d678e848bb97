"""AddPartitionsToTxn (key 24), versions 0 to 5: refused.

Brokers have no transaction coordinator. They refuse every transactional id with the same final
error as FindCoordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=24, min_version=0, max_version=5, refused="no transactions")

#: From this version on AddPartitionsToTxn has an error of the whole request.
_TRANSACTIONS_VERSION = 4


def handle(
    context: ApiContext, request: Request[AddPartitionsToTxnRequest]
) -> AddPartitionsToTxnResponse:
    """Refuse each partition; from version 4 on the request as a whole."""
    return error_response(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def error_response(
    request: Request[AddPartitionsToTxnRequest], error: ErrorCode, message: str | None = None
) -> AddPartitionsToTxnResponse:
    """Return the response that gives `error` to everything that was asked for."""
    if request.header.api_version >= _TRANSACTIONS_VERSION:
        return AddPartitionsToTxnResponse(error_code=error)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                [AddPartitionsToTxnPartitionResult(number, error) for number in topic.partitions],
            )
            for topic in request.message.v3_and_below_topics
        ]
    )
