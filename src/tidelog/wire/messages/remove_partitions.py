"""RemovePartitions (key 20000), version 0: remove the highest partitions of topics (V71).

An API of tidelog's own: Kafka has none for it, and Kafka's keys are far below (G5). Shaped like
CreatePartitions, whose opposite it is; flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import Api, array, boolean, int16, int32, string
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class RemovePartitionsTopic:
    """`count` is the new total: partitions from that number on are removed.

    With `drain` they are removed when every consumer group with committed offsets in them has read
    them to their end.
    """

    name: str = string("0+")
    count: int = int32("0+")
    drain: bool = boolean("0+")


@dataclass(slots=True)
class RemovePartitionsRequest:
    """`validate_only` checks and removes nothing."""

    topics: list[RemovePartitionsTopic] = array(RemovePartitionsTopic, "0+")
    validate_only: bool = boolean("0+")


@dataclass(slots=True)
class RemovePartitionsTopicResult:
    """Outcome of one topic: requested for good, or rejected."""

    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class RemovePartitionsResponse:
    """Outcomes, one per requested topic."""

    throttle_time_ms: int = int32("0+")
    results: list[RemovePartitionsTopicResult] = array(RemovePartitionsTopicResult, "0+")


API = Api(
    key=20_000,
    name="RemovePartitions",
    request=RemovePartitionsRequest,
    response=RemovePartitionsResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
