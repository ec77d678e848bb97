"""ElectLeaders (key 43), versions 0 to 2: preferred or unclean leaders (V13, V46, KIP-460).

Version 0 elects preferred leaders only. Answered when the new leaders are durable and told. Any
other broker than the controller answers NOT_CONTROLLER, for the whole where the version has room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.requests import Card, Pending, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=43, min_version=0, max_version=2)

_FIRST_VERSION_WITH_ERROR = 1


def handle(broker: Broker, request: Request) -> Pending | ElectLeadersResponse:
    """Ask the controller, if that is this broker."""
    message: ElectLeadersRequest = request.message
    version = request.header.api_version
    return broker.controller.elect_leaders(message, lambda: _refusal(message, version))


def _refusal(message: ElectLeadersRequest, version: int) -> ElectLeadersResponse:
    response = ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic.topic,
                [
                    PartitionResult(
                        partition, ErrorCode.NOT_CONTROLLER, "this broker is not the controller"
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.topic_partitions or ()
        ]
    )
    if version >= _FIRST_VERSION_WITH_ERROR:
        response.error_code = ErrorCode.NOT_CONTROLLER
    return response
