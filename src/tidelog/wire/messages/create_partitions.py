"""CreatePartitions (key 37), versions 0 to 3: create more partitions of topics (KIP-195).

Version 2 is flexible, version 3 may respond with THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, string


@dataclass(slots=True)
class CreatePartitionsAssignment:
    """The replicas of one new partition, the preferred leader first."""

    broker_ids: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class CreatePartitionsTopic:
    """A topic and its new total `count`; null `assignments` let the controller assign."""

    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, "0+", nullable="0+"
    )


@dataclass(slots=True)
class CreatePartitionsRequest:
    """The request to create partitions; with `validate_only` it is only checked."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    """The outcome of creating partitions of one topic."""

    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class CreatePartitionsResponse:
    """The outcomes of creating partitions, one per requested topic."""

    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")


API = Api(
    key=37,
    name="CreatePartitions",
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    min_version=0,
    max_version=3,
    first_flexible_version=2,
)
