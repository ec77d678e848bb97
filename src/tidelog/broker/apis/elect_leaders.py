"""ElectLeaders (key 43), versions 0 to 2: preferred or unclean leaders (V13, V46, KIP-460).

Version 0 elects preferred leaders only. Answered when the new leaders are durable and told. Any
other broker than the controller answers NOT_CONTROLLER, for the whole where the version has room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.refusals import refusal
from tidelog.broker.requests import Card, Pending, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.elect_leaders import ElectLeadersResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=43, min_version=0, max_version=2)


def handle(broker: Broker, request: Request) -> Pending | ElectLeadersResponse:
    """Ask the controller, if that is this broker."""
    return broker.controller.elect_leaders(
        request.message, lambda: refusal(request, ErrorCode.NOT_CONTROLLER)
    )
