"""RemovePartitions (key 20000), version 0: the highest partitions of topics removed (V71).

tidelog's own API, served and advertised on the listener between brokers only (G5). The controller
responds when the request is durable, as nodes below `/admin/partitions_remove`. The removal follows
at once. If the partitions must drain, it follows when every consumer group has read them. Any other
broker responds NOT_CONTROLLER for each topic. The controller refuses internal topics, and topics
that do not exist or are being deleted. It also refuses a number that is not below the present one,
and none at all.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DELETE_TOPIC
from tidelog.wire.messages.remove_partitions import (
    RemovePartitionsRequest,
    RemovePartitionsResponse,
)

CARD = Card(api_key=20_000, min_version=0, max_version=0, rights=(DELETE_TOPIC,))


def handle(
    context: ApiContext, request: Request[RemovePartitionsRequest]
) -> Pending | RemovePartitionsResponse:
    """Ask the controller, if that is this broker."""
    ask = partial(context.controller.ask, request.message)
    return context.store_trouble.watch(request, ask)
