"""DeleteTopics (key 20), versions 1 to 6: remove topics (V8, V22, V23).

A request gives topics by name or, from version 6 on, by id. The controller responds when the
topics' nodes are deleted. At the client's timeout the controller responds REQUEST_TIMED_OUT, and
the deletion continues. Every broker but the controller responds NOT_CONTROLLER for each topic.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DELETE_TOPIC, DESCRIBE_TOPIC
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

CARD = Card(api_key=20, min_version=1, max_version=6, rights=(DESCRIBE_TOPIC, DELETE_TOPIC))


def handle(
    context: ApiContext, request: Request[DeleteTopicsRequest]
) -> Pending | DeleteTopicsResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    message = request.message
    return context.store_trouble.watch(
        request, partial(context.controller.delete_topics, message), message.timeout_ms
    )
