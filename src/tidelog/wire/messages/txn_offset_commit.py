"""TxnOffsetCommit (key 28), versions 0 to 4: offsets of a group that a transaction commits.

Version 2 carries leader epochs. Version 3 is flexible and names the member and its generation
(KIP-447). Version 4 may respond with TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition:
    """The offset of one partition to commit in a transaction."""

    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", -1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic:
    """The offsets of one topic to commit in a transaction."""

    name: str = string("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition, "0+")


@dataclass(slots=True)
class TxnOffsetCommitRequest:
    """The offsets of a group to commit in a transaction."""

    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", -1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", None, nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition:
    """The outcome of adding one partition's offset to a transaction."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic:
    """The outcomes of adding one topic's offsets to a transaction."""

    name: str = string("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(
        TxnOffsetCommitResponsePartition, "0+"
    )


@dataclass(slots=True)
class TxnOffsetCommitResponse:
    """The outcomes of adding offsets to a transaction, one per partition."""

    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+")


API = Api(
    key=28,
    name="TxnOffsetCommit",
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
    min_version=0,
    max_version=4,
    first_flexible_version=3,
)
