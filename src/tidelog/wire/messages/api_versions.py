"""ApiVersions (key 18), versions 0 to 4: the APIs and versions that a broker serves.

Responses always carry response header 0, so that any client can read them. A request newer than
version 4 gets a response of version 0, with UNSUPPORTED_VERSION and the supported ranges (KIP-511).
Version 3 is flexible and names the client's software; version 4 allows features with a lowest level
of 0.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string


@dataclass(slots=True)
class ApiVersionsRequest:
    """The request for API versions, with the name and version of the client's software."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@dataclass(slots=True)
class ApiVersion:
    """The inclusive range of supported versions of one API key."""

    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


@dataclass(slots=True)
class SupportedFeatureKey:
    """A feature and the range of levels that the broker supports."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@dataclass(slots=True)
class FinalizedFeatureKey:
    """A feature and the levels on which the cluster has agreed."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@dataclass(slots=True)
class ApiVersionsResponse:
    """The broker's versions; `finalized_features` are valid if their epoch is not -1."""

    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", -1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)


API = Api(
    key=18,
    name="ApiVersions",
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    min_version=0,
    max_version=4,
    first_flexible_version=3,
)
