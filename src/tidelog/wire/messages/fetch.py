"""Fetch (key 1), versions 4 to 17: read record batches, as a consumer or as a follower.

Version 5 carries log start offsets, version 7 incremental sessions (KIP-227), version 9 the leader
epoch for fencing (KIP-320), version 11 racks and preferred replicas (KIP-392). Version 12 is
flexible and finds divergence by `last_fetched_epoch` (KIP-595). Version 13 names topics by id
(KIP-516). Version 15 moves the follower's id into `replica_state` with its broker epoch (KIP-903).
Version 16 lets a response name new leaders (KIP-951); version 17 carries the follower's directory
id (KIP-853). Only tidelog has the tagged field `is_synced` of a partition (V69); other brokers skip
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.primitives import Records
from tidelog.wire.schema import (
    Api,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    records,
    string,
    uuid,
)

#: The tag of a field that only tidelog has, far from the tags that Kafka assigns.
IS_SYNCED_TAG = 20_000


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The sender of a fetch: a follower's broker id and epoch, or -1 and -1 for a consumer."""

    replica_id: int = int32("15+", -1)
    replica_epoch: int = int64("15+", -1)


@dataclass(slots=True)
class FetchPartition:
    """A partition and the offset to read from.

    The partition's leader epochs fence the reader, and show where a follower's log diverges.
    """

    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", -1, ignorable=True)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", -1)
    log_start_offset: int = int64("5+", -1, ignorable=True)
    partition_max_bytes: int = int32("0+")
    replica_directory_id: bytes = uuid("17+", tag=0, ignorable=True)
    #: Whether the follower has synced its log up to `fetch_offset` (V69).
    is_synced: bool = boolean("12+", tag=IS_SYNCED_TAG, ignorable=True)


@dataclass(slots=True)
class FetchTopic:
    """Partitions of one topic: by name up to version 12, by id from 13."""

    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


@dataclass(slots=True)
class ForgottenTopic:
    """The partitions of one topic to drop from the fetch session."""

    topic: str = string("7-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: Sequence[int] = array("int32", "7+")


@dataclass(slots=True)
class FetchRequest:
    """The partitions to fetch; the response waits up to `max_wait_ms` for `min_bytes`.

    `max_bytes` bounds the size of the response.
    """

    cluster_id: str | None = string("12+", None, nullable="12+", tag=0, ignorable=True)
    replica_id: int = int32("0-14", -1)
    replica_state: ReplicaState = nested(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", 0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", -1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """The largest common leader epoch and its end, to which the follower truncates."""

    epoch: int = int32("12+", -1)
    end_offset: int = int64("12+", -1)


@dataclass(frozen=True, slots=True)
class LeaderIdAndEpoch:
    """The leader that the responding broker knows, or -1."""

    leader_id: int = int32("12+", -1)
    leader_epoch: int = int32("12+", -1)


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """A snapshot to load instead of records, used by KRaft only."""

    end_offset: int = int64("0+", -1)
    epoch: int = int32("0+", -1)


@dataclass(slots=True)
class AbortedTransaction:
    """A transaction whose records a read_committed reader must skip."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@dataclass(slots=True)
class PartitionData:
    """The response for one partition; an encoder may get several log slices as `records`."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    high_watermark: int = int64("0+")
    last_stable_offset: int = int64("4+", -1, ignorable=True)
    log_start_offset: int = int64("5+", -1, ignorable=True)
    diverging_epoch: EpochEndOffset = nested(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = nested(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True, rare=True
    )
    preferred_read_replica: int = int32("11+", -1)
    records: Records | None = records("0+", nullable="0+")


@dataclass(slots=True)
class FetchableTopicResponse:
    """Partitions of one topic: by name up to version 12, by id from 13."""

    topic: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


@dataclass(slots=True)
class NodeEndpoint:
    """The address of a leader that this response names."""

    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", None, nullable="16+")


@dataclass(slots=True)
class FetchResponse:
    """The fetched partitions; `session_id` 0 means no fetch session.

    In an incremental session, only partitions with changes are listed.
    """

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)


API = Api(
    key=1,
    name="Fetch",
    request=FetchRequest,
    response=FetchResponse,
    min_version=4,
    max_version=17,
    first_flexible_version=12,
)
