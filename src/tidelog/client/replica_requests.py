"""Requests about replicas: eligible leaders, why a leader is missing, and followers' progress.

DescribeTopicPartitions is an API of Kafka (KIP-966), which Kafka's brokers in ZooKeeper mode do not
serve. Only brokers of tidelog serve DescribeReplicas. A broker that does not serve an API of this
module responds with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask, topics_of
from tidelog.client.steps import Operation
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.leader_wait import LeaderWait, status_of
from tidelog.core.limits import MAX_DESCRIBED_PARTITIONS
from tidelog.core.shrink_causes import ShrinkCause, cause_of
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.wire.messages.describe_replicas import (
    DescribedPartition,
    DescribedReplica,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    DescribeReplicasTopic,
)
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from tidelog.wire.registry import DESCRIBE_REPLICAS, DESCRIBE_TOPIC_PARTITIONS


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The eligible replicas of a partition, and the reason for a missing leader."""

    eligible: tuple[int, ...]
    #: Kafka's LastKnownElr: the last leader of a partition that has no leader.
    last_known: tuple[int, ...]
    #: Why the partition has no leader; None if it has a leader, or if the broker gives no reason.
    wait: LeaderWait | None


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """A replica; a value is null if the leader does not know the value, or did not respond.

    `out_cause` is slow, no_fetch, leader_read, epoch, disk, offline, shutdown, bounce, session,
    moved or unknown; null in the ISR. `lag_ms` is 0 for a replica with the leader's whole log.
    """

    broker: int
    leader: bool
    in_isr: bool
    registered: bool
    log_start_offset: int | None
    log_end_offset: int | None
    lag_records: int | None
    #: Milliseconds since the replica was last caught up.
    lag_ms: int | None
    last_caught_up_ms: int | None
    last_fetch_ms: int | None
    pending_reads: int | None
    out_cause: str | None
    #: Time at which the responding broker learned that the replica had left the ISR.
    out_since_ms: int | None

    @property
    def cause(self) -> ShrinkCause | None:
        """The reason for which the replica is out of the ISR; None for a replica in the ISR."""
        return None if self.out_cause is None else ShrinkCause[self.out_cause.upper()]


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """The replicas of a partition, as described by one broker."""

    tp: TopicPartition
    leader: int
    leader_epoch: int
    #: The partition epoch of the state that the broker's response describes.
    partition_epoch: int
    #: The high watermark; None unless the responding broker leads the partition.
    high_watermark: int | None
    log_end_offset: int | None
    eligible: tuple[int, ...]
    last_leader: int
    wait: LeaderWait | None
    replicas: tuple[ReplicaProgress, ...]
    #: replica.lag.time.max.ms of the responding broker.
    max_lag_ms: int


class ReplicaAdmin:
    """Operations that describe replicas."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def eligibility(self, topics: Sequence[str]) -> Operation[dict[TopicPartition, Eligibility]]:
        """Return the eligible replicas of the topics' partitions. Raises KafkaError."""

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, Eligibility]]:
            found: dict[TopicPartition, Eligibility] = {}
            cursor: Cursor | None = None
            node = yield from self._router.any_broker(patience)
            while True:
                request = DescribeTopicPartitionsRequest(
                    [TopicRequest(name) for name in topics], cursor=cursor
                )
                response = yield from ask(
                    node,
                    DESCRIBE_TOPIC_PARTITIONS,
                    request,
                    patience,
                    DescribeTopicPartitionsResponse,
                )
                for topic in response.topics:
                    for partition in topic.partitions:
                        tp = TopicPartition(topic.name or "", partition.partition_index)
                        found[tp] = _eligibility(partition)
                if response.next_cursor is None or response.next_cursor == cursor:
                    return found
                cursor = response.next_cursor

        return self._router.repeat("reading eligible replicas", attempt)

    def describe(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> Operation[dict[TopicPartition, PartitionReplicas]]:
        """Return the replicas of the partitions that a broker knows; omit unknown partitions.

        Raises KafkaError.
        """

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, PartitionReplicas]]:
            found: dict[TopicPartition, PartitionReplicas] = {}
            for first in range(0, len(partitions), MAX_DESCRIBED_PARTITIONS):
                wanted = partitions[first : first + MAX_DESCRIBED_PARTITIONS]
                message = DescribeReplicasRequest(topics_of(wanted, DescribeReplicasTopic))
                node = yield from self._router.broker(broker_id, patience)
                response = yield from ask(
                    node, DESCRIBE_REPLICAS, message, patience, DescribeReplicasResponse
                )
                for topic in response.topics:
                    for partition in topic.partitions:
                        if partition.error_code == ErrorCode.NONE:
                            tp = TopicPartition(topic.name, partition.partition)
                            found[tp] = _replicas(tp, partition, response.max_lag_ms)
            return found

        return self._router.repeat(f"describing the replicas that {broker_id} knows", attempt)


def _eligibility(partition: DescribeTopicPartitionsResponsePartition) -> Eligibility:
    return Eligibility(
        tuple(partition.eligible_leader_replicas or ()),
        tuple(partition.last_known_elr or ()),
        _wait(
            zip(partition.awaited, partition.statuses, strict=False),
            partition.quorum,
            partition.is_waiting,
        ),
    )


def _wait(awaited: Iterable[tuple[int, int]], quorum: int, is_waiting: bool) -> LeaderWait | None:
    members = tuple((member, status_of(status)) for member, status in awaited)
    return LeaderWait(members, quorum, is_waiting) if members else None


def _replicas(
    tp: TopicPartition, partition: DescribedPartition, max_lag_ms: int
) -> PartitionReplicas:
    wait = None
    if partition.leader_id == NO_LEADER:
        members = ((member.broker_id, member.status) for member in partition.awaited)
        wait = _wait(members, partition.quorum, partition.is_waiting)
    return PartitionReplicas(
        tp=tp,
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        high_watermark=_known(partition.high_watermark),
        log_end_offset=_known(partition.log_end_offset),
        eligible=tuple(partition.eligible),
        last_leader=partition.last_leader,
        wait=wait,
        replicas=tuple(_progress(partition, replica) for replica in partition.replicas),
        max_lag_ms=max_lag_ms,
    )


def _progress(partition: DescribedPartition, replica: DescribedReplica) -> ReplicaProgress:
    is_leader = replica.broker_id == partition.leader_id
    in_isr = replica.broker_id in partition.isr
    return ReplicaProgress(
        broker=replica.broker_id,
        leader=is_leader,
        in_isr=in_isr,
        registered=replica.is_registered,
        log_start_offset=_known(replica.log_start_offset),
        log_end_offset=_known(replica.log_end_offset),
        lag_records=_known(replica.lag_records),
        lag_ms=_known(replica.lag_ms),
        last_caught_up_ms=_known(replica.last_caught_up_ms),
        last_fetch_ms=_known(replica.last_fetch_ms),
        pending_reads=replica.pending_reads if partition.is_led_here and not is_leader else None,
        out_cause=None if in_isr or replica.cause < 0 else cause_of(replica.cause).word,
        out_since_ms=_known(replica.out_since_ms),
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None
