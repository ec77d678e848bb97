"""Safety checks before a stray, a replica that was set aside, may return to its partition (V35).

A stray may return only if its return loses no record. It must have the topic id of the partition,
must not replace a replica that holds records, and must have no leader epoch above the partition's.
A stray does not return while another broker leads, because that leader would make it truncate
records that the leader lacks. A stray may return to a partition without a leader. A stray may also
return if this broker leads with an empty replica, and all followers in the ISR are empty, too. The
caller passes the state of the replicas; this module reads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_LEADER, ZERO_TOPIC_ID, TopicId, TopicPartition, topic_id_to_text


@dataclass(frozen=True, slots=True)
class Returning:
    """A stray whose log was recovered, so that it could become a replica again."""

    topic_partition: TopicPartition
    topic_id: TopicId
    log_start_offset: int
    log_end_offset: int
    #: Leader epoch of the replica's last record, -1 for a log without records.
    latest_epoch: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """The state of the stray's partition as this broker knows it from the controller."""

    topic_id: TopicId
    leader: int
    leader_epoch: int
    first_leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]


@dataclass(frozen=True, slots=True)
class Present:
    """The replica of the same partition that this broker has now."""

    log_start_offset: int
    log_end_offset: int
    is_leader: bool
    #: Log end offsets of the followers if the replica leads, -1 for a follower that has not
    #: reported an offset.
    follower_ends: Mapping[int, int] = field(default_factory=dict)


def check(
    broker_id: int, stray: Returning, assigned: Assigned | None, present: Present | None
) -> None:
    """Raise KafkaError with the reason unless the stray may return."""
    name = stray.topic_partition
    if assigned is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"the cluster has no partition {name}: bring its metadata back first (`tidelog store"
            f" import`, or its nodes), with topic id {topic_id_to_text(stray.topic_id)}",
        )
    if ZERO_TOPIC_ID in (stray.topic_id, assigned.topic_id) or stray.topic_id != assigned.topic_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"the stray is of topic id {_id(stray.topic_id)}, {name} is of topic id"
            f" {_id(assigned.topic_id)}: they are not the same topic",
        )
    if broker_id not in assigned.replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name} is not assigned to broker {broker_id}, but to {list(assigned.replicas)}:"
            " restore a stray there, or reassign the partition first",
        )
    _check_leader(broker_id, stray, assigned)
    _check_epochs(stray, assigned)
    if present is not None:
        _check_present(stray, assigned, present)


def _check_leader(broker_id: int, stray: Returning, assigned: Assigned) -> None:
    name, leader = stray.topic_partition, assigned.leader
    if leader < NO_LEADER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is being deleted")
    if leader not in (NO_LEADER, broker_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {leader} leads {name}, and records of the stray (offsets"
            f" {stray.log_start_offset} to {stray.log_end_offset}) that broker {leader} lacks would"
            f" be truncated: restore the stray of broker {leader}, others copy from it",
        )


def _check_epochs(stray: Returning, assigned: Assigned) -> None:
    name, latest = stray.topic_partition, stray.latest_epoch
    if latest > assigned.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"the last record of the stray is of leader epoch {latest}, {name} is at epoch"
            f" {assigned.leader_epoch}: its state node was recreated or is outdated; restore it"
            f" with a leader_epoch of {latest} or more",
        )
    if 0 <= latest < assigned.first_leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"the stray is of a partition {name} that was removed (its last leader epoch is"
            f" {latest}); the one that is there now began at epoch {assigned.first_leader_epoch}",
        )


def _check_present(stray: Returning, assigned: Assigned, present: Present) -> None:
    name = stray.topic_partition
    if present.log_end_offset > 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the replica of {name} that is here has offsets {present.log_start_offset} to"
            f" {present.log_end_offset}, the stray {stray.log_start_offset} to"
            f" {stray.log_end_offset}: a replica that holds, or held, records is not replaced",
        )
    if not present.is_leader:
        return
    for follower, end in sorted(present.follower_ends.items()):
        if follower in assigned.isr and end != 0:
            what = "has not reported its log end" if end < 0 else f"has offsets up to {end}"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"broker {follower}, which is in the ISR of {name}, {what}: the stray may replace"
                " the empty leader only where all of them are empty",
            )


def _id(topic_id: TopicId) -> str:
    return "unknown" if topic_id == ZERO_TOPIC_ID else topic_id_to_text(topic_id)
