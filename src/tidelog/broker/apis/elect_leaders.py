"""ElectLeaders (key 43), versions 0 to 2: preferred or unclean leaders (V13, V46, KIP-460).

Version 0 elects preferred leaders only. The controller responds when the new leaders are durable
and the brokers have taken its commands (or a second later). Any other broker responds
NOT_CONTROLLER, for the whole where the version has room.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import ALTER_CLUSTER
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

CARD = Card(api_key=43, min_version=0, max_version=2, rights=(ALTER_CLUSTER,))


def handle(
    context: ApiContext, request: Request[ElectLeadersRequest]
) -> Pending | ElectLeadersResponse:
    """Ask the controller, if that is this broker."""
    ask = partial(context.controller.ask, request.message)
    return context.store_trouble.watch(request, ask, request.message.timeout_ms)
