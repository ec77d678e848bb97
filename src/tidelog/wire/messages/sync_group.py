"""SyncGroup (key 14), versions 0 to 5: the leader sends assignments, each member gets its own.

Version 1 brings the throttle time, version 3 static members (KIP-345). Version 4 is flexible,
version 5 has protocol type and name in request and response, so that both sides compare them
(KIP-559).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, binary, int16, int32, string


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    """The assignment of one group member."""

    member_id: str = string("0+")
    assignment: bytes = binary("0+")


@dataclass(slots=True)
class SyncGroupRequest:
    """A member's request for its assignment; only the leader sends `assignments`."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", None, nullable="3+")
    protocol_type: str | None = string("5+", None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


@dataclass(slots=True)
class SyncGroupResponse:
    """The member's assignment, which is empty with an error."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", None, nullable="5+", ignorable=True)
    assignment: bytes = binary("0+")


API = Api(
    key=14,
    name="SyncGroup",
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    min_version=0,
    max_version=5,
    first_flexible_version=4,
)
