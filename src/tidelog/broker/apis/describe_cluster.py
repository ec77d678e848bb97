"""DescribeCluster (key 60), versions 0 and 1: live brokers, controller and cluster id.

The response has the cluster id, the live brokers with their endpoints on the client's listener, and
the controller if it has such an endpoint. Endpoint type 2 (KRaft controllers) gets
UNSUPPORTED_ENDPOINT_TYPE. The response has the cluster's authorized operations if the request asks
for them (KIP-430).
"""

from __future__ import annotations

from tidelog.broker.apis.support.authorized_operations import CLUSTER_OPERATIONS
from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_CLUSTER
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

CARD = Card(api_key=60, min_version=0, max_version=1, rights=(DESCRIBE_CLUSTER,))

_BROKERS = 1


def handle(
    context: ApiContext, request: Request[DescribeClusterRequest]
) -> DescribeClusterResponse:
    """Return this broker's view of the cluster."""
    message = request.message
    if message.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {message.endpoint_type} is not served; 1 (brokers) is",
            endpoint_type=message.endpoint_type,
        )
    listener = request.connection.listener
    controller_id = context.services.view.controller_id
    if context.services.view.endpoint(controller_id, listener) is None:
        controller_id = -1
    response = DescribeClusterResponse(
        cluster_id=context.services.identity.cluster_id, controller_id=controller_id
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    for broker_id, info in sorted(context.services.view.brokers.items()):
        endpoint = context.services.view.endpoint(broker_id, listener)
        if endpoint is not None:
            response.brokers.append(
                DescribeClusterBroker(broker_id, endpoint.host, endpoint.port, info.rack)
            )
    return response
