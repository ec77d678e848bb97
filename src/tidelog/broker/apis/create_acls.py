"""CreateAcls (key 30), versions 1 to 3: refused.

Brokers have no authorizer; SECURITY_DISABLED is what a Kafka broker without one answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import NO_AUTHORIZER, refuse
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.create_acls import CreateAclsResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=30, min_version=1, max_version=3, refused="no access control")


def handle(broker: Broker, request: Request) -> CreateAclsResponse:
    """Refuse each entry."""
    answer: CreateAclsResponse = refuse(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return answer
