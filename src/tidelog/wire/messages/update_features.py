"""UpdateFeatures (key 57), versions 0 and 1: change finalized features (KIP-584).

Version 1 distinguishes safe and unsafe downgrades, and can validate a request without a change
(KIP-778).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class FeatureUpdateKey:
    """A feature and its new maximum level; a level below 1 removes the feature."""

    feature: str = string("0+")
    max_version_level: int = int16("0+")
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", 1)


@dataclass(slots=True)
class UpdateFeaturesRequest:
    """The new levels of features; with `validate_only`, the controller only checks them."""

    timeout_ms: int = int32("0+", 60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+")


@dataclass(slots=True)
class UpdatableFeatureResult:
    """The outcome of the update of one feature."""

    feature: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class UpdateFeaturesResponse:
    """The outcomes of feature updates, one per feature."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)


API = Api(
    key=57,
    name="UpdateFeatures",
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
    min_version=0,
    max_version=1,
    first_flexible_version=0,
)
