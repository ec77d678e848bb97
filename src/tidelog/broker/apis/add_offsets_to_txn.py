"""AddOffsetsToTxn (key 25), versions 0 to 4: refused.

Brokers have no transaction coordinator. They refuse every transactional id with the same final
error as FindCoordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=25, min_version=0, max_version=4, refused="no transactions")


def handle(
    context: ApiContext, request: Request[AddOffsetsToTxnRequest]
) -> AddOffsetsToTxnResponse:
    """Refuse the transactional id."""
    answer: AddOffsetsToTxnResponse = error_response(
        request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    return answer
