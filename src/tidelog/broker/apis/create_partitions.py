"""CreatePartitions (key 37), versions 0 to 3: more partitions for topics (V70, KIP-195).

Answered when the new partitions are durable and their leaders were told. Any other broker than the
controller answers NOT_CONTROLLER for each topic. Internal topics are refused, whose partitions
their coordinators count to find who decides for a group: INVALID_TOPIC_EXCEPTION. Kafka 3.9 adds
them, and finds groups and their offsets elsewhere after the next restart of its brokers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.wire.messages.create_partitions import CreatePartitionsResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=37, min_version=0, max_version=3)


def handle(broker: Broker, request: Request) -> Pending | CreatePartitionsResponse:
    """Ask the controller, if that is this broker."""
    ask = partial(broker.controller.create_partitions, request.message)
    return broker.store_trouble.watch(request, ask, request.message.timeout_ms)
