"""CreateTopics (key 19), versions 2 to 7: new topics (V20, V21, V23, V24).

Answered when the topics are durable and their leaders are being told. Any other broker than the
controller answers NOT_CONTROLLER for each topic. Of a topic's configuration only what was set for
it is answered. Creation policies and quotas are not there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=19, min_version=2, max_version=7)


def handle(broker: Broker, request: Request) -> Pending | CreateTopicsResponse:
    """Ask the controller, if that is this broker."""
    message: CreateTopicsRequest = request.message
    return broker.store_trouble.watch(
        request, partial(broker.controller.create_topics, message), message.timeout_ms
    )
