"""IncrementalAlterConfigs (key 44), versions 0 and 1: change some configurations (KIP-339).

Version 1 is flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, string
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class AlterableConfig:
    """`config_operation` 0: set, 1: delete, 2: append to a list, 3: subtract from a list."""

    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class AlterConfigsResource:
    """`resource_type` 2: topic, 4: broker, 8: a broker's loggers."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
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
class IncrementalAlterConfigsResponse:
    """Outcomes, one per requested resource."""

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


API = Api(
    key=44,
    name="IncrementalAlterConfigs",
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    min_version=0,
    max_version=1,
    first_flexible_version=1,
)
