"""ConsumerGroupHeartbeat (key 68), version 0: refused.

Groups have the classic protocol only. A Kafka 3.9 broker responds UNSUPPORTED_VERSION too while the
new protocol is disabled, as it is by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.apis.support.unserved import CLASSIC_GROUPS
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=68,
    min_version=0,
    max_version=0,
    refused="groups of the classic protocol only (KIP-848)",
)


def handle(
    context: ApiContext, request: Request[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse:
    """Refuse the member."""
    answer: ConsumerGroupHeartbeatResponse = error_response(
        request, ErrorCode.UNSUPPORTED_VERSION, CLASSIC_GROUPS
    )
    return answer
