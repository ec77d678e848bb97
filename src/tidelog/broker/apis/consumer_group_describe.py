"""ConsumerGroupDescribe (key 69), version 0: refused.

Groups have the classic protocol only. UNSUPPORTED_VERSION is what a Kafka 3.9 broker answers that
has the new protocol disabled, as it is by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import CLASSIC_GROUPS, refuse
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(
    api_key=69,
    min_version=0,
    max_version=0,
    refused="groups of the classic protocol only (KIP-848)",
)


def handle(broker: Broker, request: Request) -> ConsumerGroupDescribeResponse:
    """Refuse each group; clients ask DescribeGroups then."""
    answer: ConsumerGroupDescribeResponse = refuse(
        request, ErrorCode.UNSUPPORTED_VERSION, CLASSIC_GROUPS
    )
    return answer
