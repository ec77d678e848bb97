"""Produce (key 0), versions 3 to 11: append record batches to partitions.

Version 3 brings record batches v2 and transactions, version 5 the log start offset in responses,
version 7 zstd. Version 8 brings the reasons of rejected records (KIP-467); version 9 is flexible.
Version 10 lets a response name the new leader and its address (KIP-951). Version 11 adds the error
TRANSACTION_ABORTABLE. With acks 0 there is no response.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.primitives import Records
from tidelog.wire.schema import Api, array, int16, int32, int64, nested, records, string


@dataclass(slots=True)
class PartitionProduceData:
    """The batches for one partition; tidelog expects exactly one batch."""

    index: int = int32("0+")
    records: Records | None = records("0+", nullable="0+")


@dataclass(slots=True)
class TopicProduceData:
    """The produced partitions of one topic."""

    name: str = string("0+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


@dataclass(slots=True)
class ProduceRequest:
    """The batches to append; `acks` is -1 for the whole ISR, 1 for the leader, 0 for none.

    `timeout_ms` bounds the wait for the ISR.
    """

    transactional_id: str | None = string("3+", None, nullable="3+")
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    """A record that made the leader reject its batch, and the reason."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", None, nullable="8+")


@dataclass(frozen=True, slots=True)
class LeaderIdAndEpoch:
    """The leader that the responding broker knows, or -1."""

    leader_id: int = int32("10+", -1)
    leader_epoch: int = int32("10+", -1)


@dataclass(slots=True)
class PartitionProduceResponse:
    """The outcome of an append to one partition; unknown times and offsets are -1."""

    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", -1, ignorable=True)
    log_start_offset: int = int64("5+", -1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", ignorable=True, rare=True
    )
    error_message: str | None = string("8+", None, nullable="8+", ignorable=True, rare=True)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "10+", tag=0)


@dataclass(slots=True)
class TopicProduceResponse:
    """The outcomes of appends to one topic's partitions."""

    name: str = string("0+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


@dataclass(slots=True)
class NodeEndpoint:
    """The address of a leader that this response names."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", None, nullable="10+")


@dataclass(slots=True)
class ProduceResponse:
    """The outcomes of appends; `throttle_time_ms` is 0 without quotas."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)


API = Api(
    key=0,
    name="Produce",
    request=ProduceRequest,
    response=ProduceResponse,
    min_version=3,
    max_version=11,
    first_flexible_version=9,
)
