"""CreatePartitions (key 37), versions 0 to 3: more partitions for topics (V70, KIP-195).

The controller responds when the new partitions are durable and the brokers have taken its commands
(or a second later). Any other broker responds NOT_CONTROLLER for each topic. The controller refuses
internal topics with INVALID_TOPIC_EXCEPTION: coordinators count their partitions to find the
coordinator of a group. Kafka 3.9 adds them, and finds groups and their offsets elsewhere after the
next restart of its brokers.
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
    """Ask the controller, if that is this broker."""
    ask = partial(context.controller.create_partitions, request.message)
    return context.store_trouble.watch(request, ask, request.message.timeout_ms)
