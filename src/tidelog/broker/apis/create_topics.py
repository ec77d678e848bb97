"""CreateTopics (key 19), versions 2 to 7: new topics (V20, V21, V23, V24).

Answered when the topics are durable and their leaders are being told. Any other broker than the
controller answers NOT_CONTROLLER for each topic. Of a topic's configuration only what was set for
it is answered. Creation policies and quotas are not there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=19, min_version=2, max_version=7)


def handle(
    context: ApiContext, request: Request[CreateTopicsRequest]
) -> Pending | CreateTopicsResponse:
    """Ask the controller, if that is this broker."""
    message = request.message
    return context.store_trouble.watch(
        request, partial(context.controller.create_topics, message), message.timeout_ms
    )


def error_response(
    request: Request[CreateTopicsRequest], error: ErrorCode, message: str | None = None
) -> CreateTopicsResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error)
            for topic in request.message.topics
        ]
    )
