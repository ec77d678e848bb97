"""DescribeCluster (key 60), versions 0 and 1.

The live brokers at their client endpoints, the controller, the cluster id. Endpoint type 2
(controllers, KRaft) is answered UNSUPPORTED_ENDPOINT_TYPE. Authorized operations are not told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=60, min_version=0, max_version=1)

_BROKERS = 1


def handle(broker: Broker, request: Request) -> DescribeClusterResponse:
    """What this broker knows of the cluster."""
    message: DescribeClusterRequest = request.message
    if message.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {message.endpoint_type} is not served; 1 (brokers) is",
            endpoint_type=message.endpoint_type,
        )
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id, controller_id=broker.view.controller_id
    )
    for broker_id, info in sorted(broker.view.brokers.items()):
        endpoint = broker.client_endpoint(broker_id)
        if endpoint is not None:
            response.brokers.append(
                DescribeClusterBroker(broker_id, endpoint.host, endpoint.port, info.rack)
            )
    return response
