"""UpdateFeatures (key 57), versions 0 and 1: refused.

Brokers have no finalized features. Each feature gets the error of a Kafka 3.9 broker that does not
support it: INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import NO_FEATURES
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=57, min_version=0, max_version=1, refused="no finalized features")


def handle(context: ApiContext, request: Request[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    """Refuse each feature."""
    return UpdateFeaturesResponse(
        results=[
            UpdatableFeatureResult(update.feature, ErrorCode.INVALID_REQUEST, NO_FEATURES)
            for update in request.message.feature_updates
        ]
    )


def error_response(
    request: Request[UpdateFeaturesRequest], error: ErrorCode, message: str | None = None
) -> UpdateFeaturesResponse:
    """Return the response that gives `error` to the whole request."""
    return UpdateFeaturesResponse(error_code=error, error_message=message)
