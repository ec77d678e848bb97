"""OffsetDelete (key 47), version 0: delete offsets of a group (KIP-496).

It is not flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import NEVER_FLEXIBLE, Api, array, int16, int32, string
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = int32("0+")


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


@dataclass(slots=True)
class OffsetDeleteRequest:
    """Offsets of one group."""

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    """Outcome of one partition; GROUP_SUBSCRIBED_TO_TOPIC where a member still reads it."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    """Outcomes of one topic."""

    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


@dataclass(slots=True)
class OffsetDeleteResponse:
    """A top-level error means that nothing was considered; `topics` is empty then."""

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")


API = Api(
    key=47,
    name="OffsetDelete",
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=NEVER_FLEXIBLE,
)
