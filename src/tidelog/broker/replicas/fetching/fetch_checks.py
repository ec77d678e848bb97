"""Checks whether a fetch may read a partition here, and the report of a follower's progress.

The checks cover whether this broker leads the partition, and whether the fetch has the current
topic id and leader epoch (V23, V37, G4). A follower whose fetches would not count for the ISR may
read nothing (V63). The last checks of a fetch compare the reader's last leader epoch with the
leader's log (KIP-595), and check the fetch offset (V36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_EPOCH, EpochEnd, TopicPartition
from tidelog.replication import truncation

if TYPE_CHECKING:
    from tidelog.broker.replicas.fetching.fetch_sessions import FetchSession, SessionPartition
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.replicas.hosting.partition import Partition

#: Errors that a follower gets if its leader epoch or broker epoch differs from the one that the
#: leader knows.
_EPOCH_ERRORS = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class Refusal(NamedTuple):
    """Why a read is refused: an error, or the end of the last epoch that both logs share."""

    error: ErrorCode
    diverging: EpochEnd | None = None
    #: The partition if this broker leads it, because the response then carries the partition's
    #: offsets; else None.
    partition: Partition | None = None


def readable(
    replicas: HostedPartitions, session: FetchSession, item: SessionPartition
) -> Partition | Refusal:
    """Return the replica from which a fetch may read a partition of its session, or a `Refusal`."""
    partition = _find(replicas, item)
    if isinstance(partition, ErrorCode):
        return Refusal(partition)
    if session.replica_id >= 0:
        error = partition.role.check_follower(
            session.replica_id, session.broker_epoch, item.current_leader_epoch
        )
        if error:
            return Refusal(error)
    log = partition.log
    last_epoch = item.last_fetched_epoch
    if item.fetch_offset == item.log_start_offset == log.log_start_offset:
        # The follower's log is empty and starts at the leader's log start, as after a replica has
        # deleted its whole log (V67). The leader ignores the last epoch of an empty log, because a
        # Kafka follower keeps that epoch and would get the same divergence forever.
        last_epoch = NO_EPOCH
    try:
        end = partition.diverging_epoch(last_epoch, item.fetch_offset)
    except KafkaError as refused:
        end = None
        if session.replica_id >= 0:
            end = truncation.below_log_start(
                log.epochs, log.log_start_offset, last_epoch, item.fetch_offset
            )
        if end is None:
            return Refusal(refused.code, None, partition)
    if end is not None:
        return Refusal(ErrorCode.NONE, end, partition)
    if not log.log_start_offset <= item.fetch_offset <= log.log_end_offset:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, None, partition)
    return partition


def _find(replicas: HostedPartitions, item: SessionPartition) -> Partition | ErrorCode:
    if item.topic_partition is None:
        topic = replicas.published_topic_name(item.key[0])  # type: ignore[arg-type]
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        item.topic_partition = TopicPartition(topic, item.key[1])
    partition = replicas.get(item.topic_partition)
    if partition is None:
        return replicas.missing_replica_error(item.topic_partition)
    topic_id = item.key[0]
    if isinstance(topic_id, bytes) and not partition.has_topic_id(topic_id):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return partition.check_leader_epoch(item.current_leader_epoch) or partition


def note_follower(
    replicas: HostedPartitions, session: FetchSession, item: SessionPartition, now_ms: int
) -> Partition | None:
    """Report a follower's progress to the partition (V60); return the partition if it may be read.

    Returns None if the fetch will be refused, because the fetch offset of a diverging log does not
    prove the follower's progress. When the fetch then tries to read the partition, the response
    carries the reason for the refusal.
    """
    partition = readable(replicas, session, item)
    if isinstance(partition, Refusal):
        if partition.error in _EPOCH_ERRORS and session.replica_id >= 0:
            _note_epoch(replicas, session, item, now_ms)
        if replicas.takeovers.watched and partition.partition is not None:
            _note_refusal(replicas, session, partition, partition.partition, now_ms)
        return None
    item.watch(partition)
    role = partition.role
    leadership = role.leadership
    known = None if leadership is None else leadership.followers.get(session.replica_id)
    if known is not None and item.fetch_offset < known.fetch_offset:
        # The fetch may be a late request of a connection that the follower has replaced. The
        # follower's current session would not repeat the partition's position, so that session must
        # start over (V60).
        item.offset_went_back()
    role.follower_fetched(
        session.replica_id,
        session.broker_epoch,
        item.fetch_offset,
        item.log_start_offset,
        now_ms,
        item.is_synced,
        session.reads,
    )
    return partition


def _note_epoch(
    replicas: HostedPartitions, session: FetchSession, item: SessionPartition, now_ms: int
) -> None:
    """Note that a follower's fetch has a wrong epoch, so it does not count for the ISR (V63)."""
    partition = None if item.topic_partition is None else replicas.get(item.topic_partition)
    leadership = None if partition is None else partition.leadership
    if leadership is not None:
        leadership.fetch_refused(session.replica_id, now_ms)


def _note_refusal(
    replicas: HostedPartitions,
    session: FetchSession,
    refusal: Refusal,
    partition: Partition,
    now_ms: int,
) -> None:
    """Note what a refused fetch shows: its sender knows the leader epoch, or its log diverges.

    The result belongs to the measurement of a failover (V80).
    """
    if refusal.diverging is not None:
        replicas.takeovers.diverged(partition, session.replica_id, now_ms)
    else:
        replicas.takeovers.connected(partition, session.replica_id, now_ms)
