"""UpdateFeatures (key 57), versions 0 and 1: refused.

Brokers have no finalized features. Each feature gets INVALID_REQUEST, as from a Kafka 3.9 broker
that does not support the feature.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.apis.support.errors import error_entries
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import ALTER_CLUSTER
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

CARD = Card(
    api_key=57,
    min_version=0,
    max_version=1,
    refused="no finalized features",
    rights=(ALTER_CLUSTER,),
)

_NO_FEATURES = "brokers have no finalized features"


def handle(context: ApiContext, request: Request[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    """Return an error for each feature."""
    updates, error = request.message.feature_updates, ErrorCode.INVALID_REQUEST
    return UpdateFeaturesResponse(results=error_entries(request, updates, error, _NO_FEATURES))
