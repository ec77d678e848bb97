"""ConsumerGroupHeartbeat (key 68), version 0: a member of a group of the new protocol (KIP-848).

Version 0 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, nested, string, uuid


@dataclass(slots=True)
class TopicPartitions:
    """Assigned partitions of one topic."""

    topic_id: bytes = uuid("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest:
    """A member's state; fields that have not changed are null."""

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", None, nullable="0+")
    rack_id: str | None = string("0+", None, nullable="0+")
    rebalance_timeout_ms: int = int32("0+", -1)
    subscribed_topic_names: Sequence[str] | None = array("string", "0+", None, nullable="0+")
    server_assignor: str | None = string("0+", None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, "0+", None, nullable="0+"
    )


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that the coordinator assigns to the member."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


@dataclass(slots=True)
class ConsumerGroupHeartbeatResponse:
    """The epoch and the assignment of a consumer group's member."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    member_id: str | None = string("0+", None, nullable="0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = nested(Assignment, "0+", nullable="0+")


API = Api(
    key=68,
    name="ConsumerGroupHeartbeat",
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
