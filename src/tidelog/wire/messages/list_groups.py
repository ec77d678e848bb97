"""ListGroups (key 16), versions 0 to 5: the groups that a broker coordinates.

Version 1 brings the throttle time, version 3 is flexible. Version 4 filters groups by state and
returns the state (KIP-518), version 5 the type, "classic" or "consumer" (KIP-848).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, string


@dataclass(slots=True)
class ListGroupsRequest:
    """The filters of the groups to list; an empty filter matches all groups."""

    states_filter: Sequence[str] = array("string", "4+")
    types_filter: Sequence[str] = array("string", "5+")


@dataclass(slots=True)
class ListedGroup:
    """A listed group; `protocol_type` is empty if the group only keeps offsets."""

    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@dataclass(slots=True)
class ListGroupsResponse:
    """The groups that the responding broker coordinates."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")


API = Api(
    key=16,
    name="ListGroups",
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    min_version=0,
    max_version=5,
    first_flexible_version=3,
)
