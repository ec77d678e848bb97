"""OffsetDelete (key 47), version 0: delete offsets of a group (KIP-496).

The only version is not flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import NEVER_FLEXIBLE, Api, array, int16, int32, string


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    """A partition whose committed offset is deleted."""

    partition_index: int = int32("0+")


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    """The partitions of one topic whose committed offsets are deleted."""

    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


@dataclass(slots=True)
class OffsetDeleteRequest:
    """The committed offsets of one group to delete."""

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    """The outcome for one partition; GROUP_SUBSCRIBED_TO_TOPIC if a member reads the topic."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    """The outcomes of deleting the committed offsets of one topic."""

    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


@dataclass(slots=True)
class OffsetDeleteResponse:
    """The outcomes; with a top-level error, no offset was deleted and `topics` is empty."""

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
