"""AlterConfigs (key 33), versions 0 to 2: replace the whole configuration of resources (KIP-133).

Version 2 is flexible. IncrementalAlterConfigs (44) has taken its place.
"""

from __future__ import annotations

from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, string
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class AlterableConfig:
    """One configuration to set; keys not named return to their defaults."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class AlterConfigsResource:
    """`resource_type` 2: topic, 4: broker."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@dataclass(slots=True)
class AlterConfigsRequest:
    """`validate_only` checks and changes nothing."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    """Outcome of one resource."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@dataclass(slots=True)
class AlterConfigsResponse:
    """Outcomes, one per requested resource."""

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


API = Api(
    key=33,
    name="AlterConfigs",
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    min_version=0,
    max_version=2,
    first_flexible_version=2,
)
