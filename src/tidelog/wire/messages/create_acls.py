"""CreateAcls (key 30), versions 1 to 3: add entries to access control lists.

Version 1 has pattern types (KIP-290), version 2 is flexible, version 3 supports users as resources.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int8, int16, int32, string


@dataclass(slots=True)
class AclCreation:
    """One entry to add to an access control list."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", 3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@dataclass(slots=True)
class CreateAclsRequest:
    """The entries to add to access control lists."""

    creations: list[AclCreation] = array(AclCreation, "0+")


@dataclass(slots=True)
class AclCreationResult:
    """The outcome of adding one entry to an access control list."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class CreateAclsResponse:
    """The outcomes of adding access control entries, in the order of the request."""

    throttle_time_ms: int = int32("0+")
    results: list[AclCreationResult] = array(AclCreationResult, "0+")


API = Api(
    key=30,
    name="CreateAcls",
    request=CreateAclsRequest,
    response=CreateAclsResponse,
    min_version=1,
    max_version=3,
    first_flexible_version=2,
)
