"""ElectLeaders (key 43), versions 0 to 2: elect the preferred leaders of partitions (KIP-183).

Version 1 can elect unclean leaders as well and has an error of the whole response (KIP-460);
version 2 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int8, int16, int32, string


@dataclass(slots=True)
class TopicPartitions:
    """The partitions of one topic whose leaders are elected."""

    topic: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class ElectLeadersRequest:
    """The partitions whose leaders are elected; null `topic_partitions` mean all.

    `election_type` is 0 for preferred and 1 for unclean elections.
    """

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", 60000)


@dataclass(slots=True)
class PartitionResult:
    """The outcome of one election; ELECTION_NOT_NEEDED if the partition needs none."""

    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class ReplicaElectionResult:
    """The outcomes of the elections of one topic's partitions."""

    topic: str = string("0+")
    partition_result: list[PartitionResult] = array(PartitionResult, "0+")


@dataclass(slots=True)
class ElectLeadersResponse:
    """The outcomes of elections; a top-level error means that the whole request failed."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")


API = Api(
    key=43,
    name="ElectLeaders",
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
    min_version=0,
    max_version=2,
    first_flexible_version=2,
)
