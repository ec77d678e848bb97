"""CreatePartitions (key 37), versions 0 to 3: more partitions for topics (V70, KIP-195).

Answered when the new partitions are durable and their leaders were told. Any other broker than the
controller answers NOT_CONTROLLER for each topic. Partitions of internal topics are never added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.refusals import refusal
from tidelog.broker.requests import Card, Pending, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.create_partitions import CreatePartitionsResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=37, min_version=0, max_version=3)


def handle(broker: Broker, request: Request) -> Pending | CreatePartitionsResponse:
    """Ask the controller, if that is this broker."""
    return broker.controller.create_partitions(
        request.message, lambda: refusal(request, ErrorCode.NOT_CONTROLLER)
    )
