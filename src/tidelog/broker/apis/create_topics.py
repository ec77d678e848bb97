"""CreateTopics (key 19), versions 2 to 7: new topics (V20, V21, V23, V24).

The controller responds when the topics are durable and the brokers have acknowledged its commands;
it waits for these acknowledgements for a second at most. Every broker but the controller responds
NOT_CONTROLLER for each topic. The response lists only the topic's own settings, not its inherited
configuration. tidelog has no topic creation policies and no quotas.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS_TOPIC
from tidelog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

CARD = Card(
    api_key=19,
    min_version=2,
    max_version=7,
    rights=(CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS_TOPIC),
)


def handle(
    context: ApiContext, request: Request[CreateTopicsRequest]
) -> Pending | CreateTopicsResponse:
    """Pass the request to the controller on this broker, or respond NOT_CONTROLLER."""
    message = request.message
    return context.store_trouble.watch(
        request, partial(context.controller.create_topics, message), message.timeout_ms
    )
