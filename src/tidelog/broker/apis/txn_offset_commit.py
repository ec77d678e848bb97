"""TxnOffsetCommit (key 28), versions 0 to 4: refused.

Brokers have no transaction coordinator. They refuse every transactional id with the same final
error as FindCoordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=28, min_version=0, max_version=4, refused="no transactions")


def handle(
    context: ApiContext, request: Request[TxnOffsetCommitRequest]
) -> TxnOffsetCommitResponse:
    """Refuse each partition."""
    return error_response(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def error_response(
    request: Request[TxnOffsetCommitRequest], error: ErrorCode, message: str | None = None
) -> TxnOffsetCommitResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(partition.partition_index, error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
    )
