"""IncrementalAlterConfigs (key 44), versions 0 and 1: set, unset, append, subtract (KIP-339).

`broker/configs/config_requests` describes the rules. A request can also change the levels of a
broker's loggers (KIP-412).
"""

from __future__ import annotations

from tidelog.broker.apis.alter_configs import alter
from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_TOPIC
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

CARD = Card(
    api_key=44, min_version=0, max_version=1, rights=(ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_CLUSTER)
)


def handle(context: ApiContext, request: Request[IncrementalAlterConfigsRequest]) -> Pending:
    """Check the requested configuration changes, write them to the store, and respond."""
    return alter(context, request, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse)
