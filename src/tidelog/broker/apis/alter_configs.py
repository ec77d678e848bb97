"""AlterConfigs (key 33), versions 0 to 2: replace the settings of topics and brokers (KIP-133).

Keys that the request does not name return to their inherited values.
`broker/configs/config_requests` describes the rules. AlterConfigs cannot change the levels of
loggers; IncrementalAlterConfigs can.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.configs import config_requests
from tidelog.broker.configs.config_requests import Resource
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_TOPIC
from tidelog.core.dynamic_config import Alteration, ConfigOperation
from tidelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

CARD = Card(
    api_key=33, min_version=0, max_version=2, rights=(ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_CLUSTER)
)


def handle(context: ApiContext, request: Request[AlterConfigsRequest]) -> Pending:
    """Check the requested configuration changes, write them to the store, and respond."""
    return alter(context, request, AlterConfigsResponse, AlterConfigsResourceResponse)


def alter(
    context: ApiContext, request: Request[Any], response: type, resource_response: type
) -> Pending:
    """Respond to AlterConfigs or IncrementalAlterConfigs with the outcome for each resource."""
    return context.dispatcher.answer_from(
        _alter(context, request.message, response, resource_response), request
    )


async def _alter(context: ApiContext, message: Any, response: type, resource_response: type) -> Any:
    replace = isinstance(message, AlterConfigsRequest)
    resources = [
        Resource(
            resource.resource_type,
            resource.resource_name,
            [
                Alteration(
                    it.name, ConfigOperation.SET if replace else it.config_operation, it.value
                )
                for it in resource.configs
            ],
        )
        for resource in message.resources
    ]
    outcomes = await config_requests.alter(
        context.services,
        context.config_store,
        context.live_configs.static,
        resources,
        replace=replace,
        validate_only=message.validate_only,
    )
    return response(
        responses=[
            resource_response(outcome.error, outcome.message, outcome.type, outcome.name)
            for outcome in outcomes
        ]
    )
