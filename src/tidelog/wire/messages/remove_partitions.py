"""RemovePartitions (key 20000), version 0: remove the highest partitions of topics (V71).

Only tidelog has this flexible API (G5). The messages resemble the messages of CreatePartitions.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, string


@dataclass(slots=True)
class RemovePartitionsTopic:
    """A topic whose partitions from number `count` on are removed.

    With `drain`, a partition is removed when every consumer group with committed offsets in it has
    read it to its end.
    """

    name: str = string("0+")
    count: int = int32("0+")
    drain: bool = boolean("0+")


@dataclass(slots=True)
class RemovePartitionsRequest:
    """The request to remove partitions; with `validate_only` it is only checked."""

    topics: list[RemovePartitionsTopic] = array(RemovePartitionsTopic, "0+")
    validate_only: bool = boolean("0+")


@dataclass(slots=True)
class RemovePartitionsTopicResult:
    """The outcome for one topic: the removal is recorded, or rejected."""

    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class RemovePartitionsResponse:
    """The outcomes of removing partitions, one per requested topic."""

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
