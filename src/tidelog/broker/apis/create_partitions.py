"""CreatePartitions (key 37), versions 0 to 3: more partitions for topics (V70, KIP-195).

Answered when the new partitions are durable and their leaders were told. Any other broker than the
controller answers NOT_CONTROLLER for each topic. Partitions of internal topics are never added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.requests import Card, Pending, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=37, min_version=0, max_version=3)


def handle(broker: Broker, request: Request) -> Pending | CreatePartitionsResponse:
    """Ask the controller, if that is this broker."""
    message: CreatePartitionsRequest = request.message
    return broker.controller.create_partitions(message, lambda: _refusal(message))


def _refusal(message: CreatePartitionsRequest) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                topic.name, ErrorCode.NOT_CONTROLLER, "this broker is not the controller"
            )
            for topic in message.topics
        ]
    )
