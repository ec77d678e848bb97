"""DeleteGroups (key 42), versions 0 to 2: delete empty groups and their offsets (KIP-229).

Version 2 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, string


@dataclass(slots=True)
class DeleteGroupsRequest:
    """The ids of consumer groups to delete."""

    groups_names: Sequence[str] = array("string", "0+")


@dataclass(slots=True)
class DeletableGroupResult:
    """The outcome of deleting one group; NON_EMPTY_GROUP if it has members."""

    group_id: str = string("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class DeleteGroupsResponse:
    """The outcomes of deleting groups, one per requested group."""

    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")


API = Api(
    key=42,
    name="DeleteGroups",
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    min_version=0,
    max_version=2,
    first_flexible_version=2,
)
