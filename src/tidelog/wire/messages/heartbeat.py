"""Heartbeat (key 12), versions 0 to 4: a member reports that it is alive.

Version 1 brings the throttle time, version 3 static members (KIP-345); version 4 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, int16, int32, string


@dataclass(slots=True)
class HeartbeatRequest:
    """A group member's heartbeat, with the generation that it knows."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", None, nullable="3+")


@dataclass(slots=True)
class HeartbeatResponse:
    """The outcome of a heartbeat; REBALANCE_IN_PROGRESS makes the member rejoin."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")


API = Api(
    key=12,
    name="Heartbeat",
    request=HeartbeatRequest,
    response=HeartbeatResponse,
    min_version=0,
    max_version=4,
    first_flexible_version=4,
)
