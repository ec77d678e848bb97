"""DescribeReplicas (key 20004), version 0: each replica's progress, and why it is out of the ISR.

Only tidelog has this flexible API (G5). Every broker responds with published state; the leader of a
partition adds the progress of the replicas (F1).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, int64, string, uuid


@dataclass(slots=True)
class DescribeReplicasTopic:
    """A topic and its partitions to describe; no partitions mean all of them."""

    name: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class DescribeReplicasRequest:
    """The request to describe replicas, of at most 2,000 partitions."""

    topics: list[DescribeReplicasTopic] = array(DescribeReplicasTopic, "0+")


@dataclass(slots=True)
class AwaitedMember:
    """A replica that may become the leader of a partition without a leader.

    `status` is the replica's MemberStatus: what the election knows about it.
    """

    broker_id: int = int32("0+")
    status: int = int8("0+")


@dataclass(slots=True)
class DescribedReplica:
    """A replica; unknown offsets, lags and times are -1.

    Times are the wall clock of the responding broker in ms. `lag_ms` is the time since the replica
    was last caught up, 0 while it has the leader's whole log. `cause` is a ShrinkCause, and
    `out_since_ms` the time at which the responding broker learned of the shrink. `pending_reads` is
    the number of the leader's unfinished reads for the replica (F5).
    """

    broker_id: int = int32("0+")
    is_registered: bool = boolean("0+")
    log_start_offset: int = int64("0+", -1)
    log_end_offset: int = int64("0+", -1)
    lag_records: int = int64("0+", -1)
    lag_ms: int = int64("0+", -1)
    last_caught_up_ms: int = int64("0+", -1)
    last_fetch_ms: int = int64("0+", -1)
    pending_reads: int = int32("0+")
    cause: int = int8("0+", -1)
    out_since_ms: int = int64("0+", -1)


@dataclass(slots=True)
class DescribedPartition:
    """A partition; if `is_led_here`, the responding broker leads it and knows all progress.

    For a partition without a leader, `awaited` are the replicas that may lead, each with a
    MemberStatus. `quorum` is the number of these replicas whose brokers must be registered before a
    replica that may lack committed records may lead (E6).
    """

    partition: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+", -1)
    leader_epoch: int = int32("0+", -1)
    partition_epoch: int = int32("0+", -1)
    is_led_here: bool = boolean("0+")
    high_watermark: int = int64("0+", -1)
    log_end_offset: int = int64("0+", -1)
    isr: Sequence[int] = array("int32", "0+")
    eligible: Sequence[int] = array("int32", "0+")
    last_leader: int = int32("0+", -1)
    awaited: list[AwaitedMember] = array(AwaitedMember, "0+")
    quorum: int = int32("0+")
    is_waiting: bool = boolean("0+")
    replicas: list[DescribedReplica] = array(DescribedReplica, "0+")


@dataclass(slots=True)
class DescribedTopic:
    """A topic with its partitions, or the error."""

    name: str = string("0+")
    topic_id: bytes = uuid("0+")
    error_code: int = int16("0+")
    partitions: list[DescribedPartition] = array(DescribedPartition, "0+")


@dataclass(slots=True)
class DescribeReplicasResponse:
    """The described replicas; `truncated` is set if the request names too many partitions."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    #: `replica.lag.time.max.ms` of the responding broker.
    max_lag_ms: int = int64("0+")
    truncated: bool = boolean("0+")
    topics: list[DescribedTopic] = array(DescribedTopic, "0+")


API = Api(
    key=20_004,
    name="DescribeReplicas",
    request=DescribeReplicasRequest,
    response=DescribeReplicasResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
