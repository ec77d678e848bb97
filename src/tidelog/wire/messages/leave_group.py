"""LeaveGroup (key 13), versions 0 to 5: members leave, or an administrator removes them.

Version 1 brings the throttle time, version 3 names many members, by member id or instance id
(KIP-345). Version 4 is flexible, version 5 carries the reason (KIP-800).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, string


@dataclass(slots=True)
class MemberIdentity:
    """A member that leaves; a static member needs only its `group_instance_id`."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", None, nullable="3+")
    reason: str | None = string("5+", None, nullable="5+", ignorable=True)


@dataclass(slots=True)
class LeaveGroupRequest:
    """The members that leave: `member_id` up to version 2, `members` from version 3 on."""

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@dataclass(slots=True)
class MemberResponse:
    """The outcome of leaving a group for one member."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@dataclass(slots=True)
class LeaveGroupResponse:
    """The outcomes of leaving a group; up to version 2, only a top-level error code."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")


API = Api(
    key=13,
    name="LeaveGroup",
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    min_version=0,
    max_version=5,
    first_flexible_version=4,
)
