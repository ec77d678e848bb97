"""CreatePartitions (key 37), versions 0 to 3: add partitions to topics (V70, KIP-195).

The controller responds when the new partitions are durable and the brokers have acknowledged its
commands; it waits for these acknowledgements for a second at most. Every broker but the controller
responds NOT_CONTROLLER for each topic. The controller refuses internal topics with
INVALID_TOPIC_EXCEPTION, because coordinators use the partition count to find the coordinator of a
group. Kafka 3.9 adds partitions to an internal topic; after the next restart its brokers look for
groups and their offsets in other partitions.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import ALTER_TOPIC
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)

CARD = Card(api_key=37, min_version=0, max_version=3, rights=(ALTER_TOPIC,))


def handle(
    context: ApiContext, request: Request[CreatePartitionsRequest]
) -> Pending | CreatePartitionsResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    ask = partial(context.controller.create_partitions, request.message)
    return context.store_trouble.watch(request, ask, request.message.timeout_ms)
