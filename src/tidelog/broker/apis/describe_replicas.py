"""DescribeReplicas (key 20004), version 0: replicas' progress, and why replicas are not in the ISR.

This API is tidelog's own; brokers serve and advertise it on the inter-broker listener only (G5).
Any broker responds with the state that the controller has published: the ISR, the reasons why other
replicas left the ISR, and the replicas for which a leaderless partition waits (E4, E6). Only the
leader knows the progress of its replicas (F1).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_DESCRIBED_PARTITIONS
from tidelog.core.types import TopicPartition
from tidelog.replication import lag
from tidelog.wire.messages.describe_replicas import (
    AwaitedMember,
    DescribedPartition,
    DescribedReplica,
    DescribedTopic,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)

CARD = Card(api_key=20_004, min_version=0, max_version=0, rights=(DESCRIBE_TOPIC,))


def handle(
    context: ApiContext, request: Request[DescribeReplicasRequest]
) -> DescribeReplicasResponse:
    """Describe the first 2,000 partitions that the request names."""
    response = DescribeReplicasResponse(max_lag_ms=context.services.config.replica_lag_time_max_ms)
    room = MAX_DESCRIBED_PARTITIONS
    for wanted in request.message.topics:
        topic = context.services.view.topics.get(wanted.name)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response.topics.append(DescribedTopic(wanted.name, error_code=error))
            continue
        numbers: Sequence[int] = wanted.partitions or sorted(topic.partitions)
        response.truncated = response.truncated or len(numbers) > room
        numbers = numbers[:room]
        room -= len(numbers)
        partitions = [_partition(context, topic, number) for number in numbers]
        response.topics.append(
            DescribedTopic(topic.name, topic.topic_id, ErrorCode.NONE, partitions)
        )
    return response


def _partition(context: ApiContext, topic: TopicView, number: int) -> DescribedPartition:
    view = topic.partitions.get(number)
    if view is None:
        return DescribedPartition(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    described = DescribedPartition(
        partition=number,
        leader_id=view.leader,
        leader_epoch=view.leader_epoch,
        partition_epoch=view.partition_epoch,
        isr=view.isr,
        eligible=view.eligible,
        last_leader=view.last_leader,
        replicas=[_published(context, view, replica) for replica in view.replicas],
    )
    if view.wait is not None:
        described.awaited = [AwaitedMember(member, status) for member, status in view.wait.members]
        described.quorum, described.is_waiting = view.wait.quorum, view.wait.is_waiting
    _add_progress(context, topic, described)
    return described


def _published(context: ApiContext, view: PartitionView, replica: int) -> DescribedReplica:
    described = DescribedReplica(replica, is_registered=context.services.view.is_alive(replica))
    out = view.out_of_isr.get(replica)
    if out is not None:
        described.cause, described.out_since_ms = out.cause, out.since_ms
    return described


def _add_progress(context: ApiContext, topic: TopicView, described: DescribedPartition) -> None:
    """Add the replicas' progress if this broker is the leader, because only the leader knows it."""
    replicas, clock = context.replicas, context.services.clock
    partition = replicas.get(TopicPartition(topic.name, described.partition))
    leadership = None if partition is None else partition.leadership
    if partition is None or leadership is None or not partition.has_topic_id(topic.topic_id):
        return
    if leadership.leader_epoch != described.leader_epoch:
        return
    described.is_led_here = True
    described.high_watermark = leadership.high_watermark
    described.log_end_offset = leadership.log_end_offset
    now_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
    for replica in described.replicas:
        if replica.broker_id == leadership.broker_id:
            replica.log_start_offset = partition.log.log_start_offset
            replica.log_end_offset = leadership.log_end_offset
            replica.lag_records = replica.lag_ms = 0
            replica.last_caught_up_ms = wall_ms
            continue
        follower = leadership.followers.get(replica.broker_id)
        if follower is None:
            continue
        progress = lag.progress_of(follower, leadership.log_end_offset, now_ms)
        replica.log_start_offset = follower.log_start_offset
        replica.log_end_offset = follower.log_end_offset
        replica.lag_records, replica.lag_ms = progress.lag_records, progress.lag_ms
        if progress.lag_ms >= 0:
            replica.last_caught_up_ms = wall_ms - progress.lag_ms
        if progress.since_fetch_ms >= 0:
            replica.last_fetch_ms = wall_ms - progress.since_fetch_ms
        replica.pending_reads = progress.pending_reads
