"""ConsumerGroupDescribe (key 69), version 0: groups of the new protocol (KIP-848).

Version 0 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, nested, string, uuid


@dataclass(slots=True)
class ConsumerGroupDescribeRequest:
    """The request to describe consumer groups by id."""

    group_ids: Sequence[str] = array("string", "0+")
    include_authorized_operations: bool = boolean("0+")


@dataclass(slots=True)
class TopicPartitions:
    """Assigned partitions of one topic."""

    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that are assigned to a member of a consumer group."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


@dataclass(slots=True)
class Member:
    """One member of a described consumer group."""

    member_id: str = string("0+")
    instance_id: str | None = string("0+", None, nullable="0+")
    rack_id: str | None = string("0+", None, nullable="0+")
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: Sequence[str] = array("string", "0+")
    subscribed_topic_regex: str | None = string("0+", None, nullable="0+")
    assignment: Assignment = nested(Assignment, "0+")
    target_assignment: Assignment = nested(Assignment, "0+")


@dataclass(slots=True)
class DescribedGroup:
    """One described consumer group."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: list[Member] = array(Member, "0+")
    authorized_operations: int = int32("0+", -0x80000000)


@dataclass(slots=True)
class ConsumerGroupDescribeResponse:
    """The described consumer groups, in the order of the request."""

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


API = Api(
    key=69,
    name="ConsumerGroupDescribe",
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
