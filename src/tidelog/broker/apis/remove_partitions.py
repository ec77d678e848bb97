"""RemovePartitions (key 20000), version 0: remove the highest partitions of topics (V71).

This API is tidelog's own; brokers serve and advertise it on the inter-broker listener only (G5).
The controller responds when nodes below `/admin/partitions_remove` have made the request durable.
The controller then removes the partitions at once. If the request asks to drain the partitions, the
controller first waits until every consumer group has read them to the end. Every broker but the
controller responds NOT_CONTROLLER for each topic. The controller refuses internal topics, and
topics that do not exist or are being deleted. The controller also refuses a new partition count
that is 0, or not below the current count.
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
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    ask = partial(context.controller.ask, request.message)
    return context.store_trouble.watch(request, ask)
