"""DeleteAcls (key 31), versions 1 to 3: remove the entries that match filters.

Version 1 has pattern types (KIP-290), version 2 is flexible, version 3 supports users as resources.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int8, int16, int32, string


@dataclass(slots=True)
class DeleteAclsFilter:
    """One filter of access control entries; a null field matches all."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", 3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@dataclass(slots=True)
class DeleteAclsRequest:
    """The filters of the access control entries to remove."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "0+")


@dataclass(slots=True)
class DeleteAclsMatchingAcl:
    """An access control entry that matched, and whether it was removed."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", 3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@dataclass(slots=True)
class DeleteAclsFilterResult:
    """The outcome of removing the access control entries of one filter."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "0+")


@dataclass(slots=True)
class DeleteAclsResponse:
    """The outcomes of removing access control entries, in the order of the filters."""

    throttle_time_ms: int = int32("0+")
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "0+")


API = Api(
    key=31,
    name="DeleteAcls",
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
    min_version=1,
    max_version=3,
    first_flexible_version=2,
)
