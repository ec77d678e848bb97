"""DeleteTopics (key 20), versions 1 to 6: remove topics (V8, V22, V23).

By name or, from version 6 on, by id. Answered when the topics' nodes are gone, or with
REQUEST_TIMED_OUT when the client's time is over; the deletion goes on then. Any other broker than
the controller answers NOT_CONTROLLER for each topic.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=20, min_version=1, max_version=6)


def handle(broker: Broker, request: Request) -> Pending | DeleteTopicsResponse:
    """Ask the controller, if that is this broker."""
    message: DeleteTopicsRequest = request.message
    return broker.store_trouble.watch(
        request, partial(broker.controller.delete_topics, message), message.timeout_ms
    )
