"""DescribeClientQuotas (key 48), versions 0 and 1: no quotas exist.

Brokers enforce and store no quotas, so the response is always empty.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_CONFIGS_CLUSTER
from tidelog.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

CARD = Card(api_key=48, min_version=0, max_version=1, rights=(DESCRIBE_CONFIGS_CLUSTER,))


def handle(
    context: ApiContext, request: Request[DescribeClientQuotasRequest]
) -> DescribeClientQuotasResponse:
    """Return no entries, because this broker has no client quotas."""
    return DescribeClientQuotasResponse(entries=[])
