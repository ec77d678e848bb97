"""DescribeProducers (key 61), version 0: producers that a replica knows (KIP-664).

Version 0 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class TopicRequest:
    """The partitions of one topic whose producers are described."""

    name: str = string("0+")
    partition_indexes: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class DescribeProducersRequest:
    """The partitions whose producers are described."""

    topics: list[TopicRequest] = array(TopicRequest, "0+")


@dataclass(slots=True)
class ProducerState:
    """One idempotent producer; the start of its transaction is -1 if none is open."""

    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", -1)
    last_timestamp: int = int64("0+", -1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", -1)


@dataclass(slots=True)
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState, "0+")


@dataclass(slots=True)
class TopicResponse:
    """The described partitions of one topic."""

    name: str = string("0+")
    partitions: list[PartitionResponse] = array(PartitionResponse, "0+")


@dataclass(slots=True)
class DescribeProducersResponse:
    """The described producers, by partition."""

    throttle_time_ms: int = int32("0+")
    topics: list[TopicResponse] = array(TopicResponse, "0+")


API = Api(
    key=61,
    name="DescribeProducers",
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
