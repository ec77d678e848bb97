"""DescribeConfigs (key 32), versions 1 to 4: configuration of topics and brokers, and its origin.

Version 1 has the source of each value and its synonyms, most specific first (KIP-226), version 3
its type and documentation (KIP-569); version 4 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class DescribeConfigsResource:
    """A resource to describe; null keys mean all keys.

    `resource_type` is 2 for a topic, 4 for a broker, and 8 for a broker's loggers.
    """

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: Sequence[str] | None = array("string", "0+", nullable="0+")


@dataclass(slots=True)
class DescribeConfigsRequest:
    """The request to describe configurations, with synonyms and documentation on request."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@dataclass(slots=True)
class DescribeConfigsSynonym:
    """A possible source of a configuration's value, used if no more specific source is set."""

    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    """One configuration of a resource; a sensitive value is null."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    config_source: int = int8("1+", -1, ignorable=True)
    is_sensitive: bool = boolean("0+")
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


@dataclass(slots=True)
class DescribeConfigsResult:
    """The configuration of one resource, or the error."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0+")


@dataclass(slots=True)
class DescribeConfigsResponse:
    """The described configurations, one per requested resource."""

    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")


API = Api(
    key=32,
    name="DescribeConfigs",
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
    min_version=1,
    max_version=4,
    first_flexible_version=4,
)
