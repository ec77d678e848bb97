"""AlterConfigs (key 33), versions 0 to 2: replace the whole configuration of resources (KIP-133).

Version 2 is flexible. IncrementalAlterConfigs (44) replaces this API.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class AlterableConfig:
    """One configuration to set; keys that are not named return to their defaults."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class AlterConfigsResource:
    """A resource and its new configuration; `resource_type` is 2 for topics, 4 for brokers."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@dataclass(slots=True)
class AlterConfigsRequest:
    """The request to replace configurations; with `validate_only`, it is only checked."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    """The outcome of the change of one resource's configuration."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@dataclass(slots=True)
class AlterConfigsResponse:
    """The outcomes of configuration changes, one per requested resource."""

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
