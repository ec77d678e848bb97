"""DescribeAcls (key 29), versions 1 to 3: access control lists that match a filter.

Version 1 has pattern types (KIP-290), version 2 is flexible, version 3 supports users as resources.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int8, int16, int32, string


@dataclass(slots=True)
class DescribeAclsRequest:
    """The filter of access control entries to describe; a null field matches all."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", 3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@dataclass(slots=True)
class AclDescription:
    """One entry of a described access control list."""

    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@dataclass(slots=True)
class DescribeAclsResource:
    """A resource and its access control list."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", 3)
    acls: list[AclDescription] = array(AclDescription, "0+")


@dataclass(slots=True)
class DescribeAclsResponse:
    """The access control lists that match the filter."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "0+")


API = Api(
    key=29,
    name="DescribeAcls",
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
    min_version=1,
    max_version=3,
    first_flexible_version=2,
)
