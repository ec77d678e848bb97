"""IncrementalAlterConfigs (key 44), versions 0 and 1: set, unset, append, subtract (KIP-339).

`broker/configs/config_requests` describes the rules; levels of loggers are not supported.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.configs import config_requests
from tidelog.broker.configs.config_requests import Resource
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.dynamic_config import Alteration
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

CARD = Card(api_key=44, min_version=0, max_version=1)


def handle(context: ApiContext, request: Request[IncrementalAlterConfigsRequest]) -> Pending:
    """Check, write to the store, respond."""
    return context.dispatcher.answer_from(_alter(context, request.message), request)


async def _alter(
    context: ApiContext, message: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    resources = [
        Resource(
            resource.resource_type,
            resource.resource_name,
            [Alteration(it.name, it.config_operation, it.value) for it in resource.configs],
        )
        for resource in message.resources
    ]
    outcomes = await config_requests.alter(
        context.services,
        context.config_store,
        context.live_configs.static,
        resources,
        replace=False,
        validate_only=message.validate_only,
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(outcome.error, outcome.message, outcome.type, outcome.name)
            for outcome in outcomes
        ]
    )
