"""DescribeGroups (key 15), versions 0 to 5: state and members of groups.

Version 1 brings the throttle time, version 3 authorized operations (KIP-430), version 4 static
members (KIP-345); version 5 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, binary, boolean, int16, int32, string


@dataclass(slots=True)
class DescribeGroupsRequest:
    """The ids of the groups to describe."""

    groups: Sequence[str] = array("string", "0+")
    include_authorized_operations: bool = boolean("3+")


@dataclass(slots=True)
class DescribedGroupMember:
    """A member; its metadata and assignment are empty unless the group is Stable."""

    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", None, nullable="4+", ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = binary("0+")
    member_assignment: bytes = binary("0+")


@dataclass(slots=True)
class DescribedGroup:
    """One group; `group_state` is Stable, Empty, Dead, ..., and `protocol_data` is its assignor.

    Authorized operations are a bit field, -2147483648 if not requested.
    """

    error_code: int = int16("0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", -0x80000000)


@dataclass(slots=True)
class DescribeGroupsResponse:
    """The described groups; a group that does not exist is Dead, without an error."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


API = Api(
    key=15,
    name="DescribeGroups",
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    min_version=0,
    max_version=5,
    first_flexible_version=5,
)
