"""JoinGroup (key 11), versions 0 to 9: become or stay a member of a group.

Version 1 brings the rebalance timeout (KIP-62), version 2 the throttle time. Version 4 responds to
a new member with MEMBER_ID_REQUIRED and a member id, with which the member rejoins (KIP-394).
Version 5 brings static members (KIP-345); version 6 is flexible. Version 7 returns the protocol
type (KIP-559), version 8 carries the reason (KIP-800). In version 9, a response can make the
group's leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, binary, boolean, int16, int32, string


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    """An assignor that the member supports, with its metadata for the group's leader."""

    name: str = string("0+")
    metadata: bytes = binary("0+")


@dataclass(slots=True)
class JoinGroupRequest:
    """A member's request to join a group; an empty `member_id` requests a new id.

    Version 0 has no rebalance timeout (-1 here), so the session timeout replaces it.
    """

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", -1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", None, nullable="5+")
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", None, nullable="8+", ignorable=True)


@dataclass(slots=True)
class JoinGroupResponseMember:
    """A member, with its metadata for the chosen protocol."""

    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", None, nullable="5+", ignorable=True)
    metadata: bytes = binary("0+")


@dataclass(slots=True)
class JoinGroupResponse:
    """The new generation; only the leader gets `members`.

    With an error, `protocol_name` is null from version 7 on, and empty before.
    """

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", -1)
    protocol_type: str | None = string("7+", None, nullable="7+", ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")


API = Api(
    key=11,
    name="JoinGroup",
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    min_version=0,
    max_version=9,
    first_flexible_version=6,
)
