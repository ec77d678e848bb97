"""ElectLeaders (key 43), versions 0 to 2: preferred or unclean leaders (V13, V46, KIP-460).

Version 0 elects preferred leaders only. Answered when the new leaders are durable and told. Any
other broker than the controller answers NOT_CONTROLLER, for the whole where the version has room.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.wire.messages.elect_leaders import ElectLeadersResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=43, min_version=0, max_version=2)


def handle(broker: Broker, request: Request) -> Pending | ElectLeadersResponse:
    """Ask the controller, if that is this broker."""
    ask = partial(broker.controller.elect_leaders, request.message)
    return broker.store_trouble.watch(request, ask, request.message.timeout_ms)
