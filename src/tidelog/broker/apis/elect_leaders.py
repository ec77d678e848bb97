"""ElectLeaders (key 43), versions 0 to 2: elect preferred or unclean leaders (V13, V46, KIP-460).

Version 0 elects preferred leaders only. The controller responds when the new leaders are durable
and the brokers have acknowledged its commands; it waits for these acknowledgements for a second at
most. Every broker but the controller responds NOT_CONTROLLER, in the top-level error field if the
version has one, else for each partition.
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
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    ask = partial(context.controller.ask, request.message)
    return context.store_trouble.watch(request, ask, request.message.timeout_ms)
