"""IncrementalAlterConfigs (key 44), versions 0 and 1: change some configurations (KIP-339).

Version 1 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class AlterableConfig:
    """One operation on a configuration.

    `config_operation` is 0 to set, 1 to delete, 2 to append to a list, and 3 to subtract from a
    list.
    """

    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class AlterConfigsResource:
    """A resource; `resource_type` is 2 for a topic, 4 for a broker, 8 for a broker's loggers."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
    """The operations on configurations; with `validate_only`, the broker only checks them."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    """The outcome of the operations on one resource's configuration."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@dataclass(slots=True)
class IncrementalAlterConfigsResponse:
    """The outcomes of configuration operations, one per requested resource."""

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
