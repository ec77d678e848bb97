"""AddPartitionsToTxn (key 24), versions 0 to 5: refused.

Brokers have no transaction coordinator. Every transactional id is refused, with the final error
that FindCoordinator answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import refuse
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=24, min_version=0, max_version=5, refused="no transactions")


def handle(broker: Broker, request: Request) -> AddPartitionsToTxnResponse:
    """Refuse each partition; from version 4 on the request as a whole."""
    answer: AddPartitionsToTxnResponse = refuse(
        request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    return answer
