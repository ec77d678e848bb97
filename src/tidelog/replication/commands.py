"""Which of the controller's commands a broker obeys, and what a command means for the broker's
logs.

This module implements V30 (epochs), D3 (when a missing replica may be created), V23 and G4 (topic
ids), V35 and V45 (strays, which a full command omits). Commands for different partitions are
independent. The module does not know requests, logs or directories: the caller passes their state,
and gets the decision. AlterPartition responses and commands travel on different connections, so an
older message may arrive after a newer one. Commands may also arrive out of order after the
controller has replaced its connection to the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition

#: Leader epoch of a StopReplica for a topic that is being deleted; this epoch overrides every other
#: epoch (V30).
EPOCH_DURING_DELETE = -2
#: Leader epoch of a StopReplica from an old version of the controller, which sends no leader epoch.
NO_STOP_EPOCH = -1

#: Number of different correlation ids; after the highest id, correlation ids start again from the
#: lowest. If two correlation ids differ by more than half of `_CORRELATION_IDS`, the lower id was
#: therefore sent later.
_CORRELATION_IDS = 1 << 31

#: If strays are more than `STRAYS_PERCENT` of a broker's replicas, and at least `STRAYS_AT_LEAST`,
#: their deletion waits for an operator's confirmation (V35).
STRAYS_PERCENT = 10
STRAYS_AT_LEAST = 100


class OfflineReplica(NamedTuple):
    """A replica whose log directory has failed in this process (D4)."""

    topic_id: TopicId
    #: Leader epoch of the last command that the replica's broker obeyed, -1 if it obeyed none.
    leader_epoch: int


class Placement(Enum):
    """Whether this broker has the replica that a command names, which decides what the broker
    does.
    """

    #: The replica is on this broker.
    KEEP = "keep"
    #: The replica is not on this broker, and may be created empty.
    CREATE = "create"
    #: The replica is not on this broker, although the command names it as leader or ISR member. The
    #: replica's log was lost, and an empty replica must not take its place (D3).
    LOST = "lost"
    #: The replica is not on this broker, but may be in a failed log directory, so the broker
    #: creates no replica (D3).
    OFFLINE = "offline"
    #: This broker has a replica of another topic of the same name (V23).
    OTHER_TOPIC = "other topic"


def request_error(
    *,
    known_controller_epoch: int,
    controller_epoch: int,
    own_broker_epoch: int,
    is_registered: bool,
    broker_epoch: int,
) -> ErrorCode:
    """Return the error with which the broker rejects a whole command, or NONE if it obeys (V30).

    `own_broker_epoch` is the epoch of this broker's latest registration. If this registration has
    ended, the broker obeys only commands for a newer broker epoch. A command's broker epoch above
    `own_broker_epoch` belongs to a newer registration, of which the controller has learnt before
    this broker.
    """
    if controller_epoch < known_controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if broker_epoch == NO_BROKER_EPOCH:
        return ErrorCode.NONE if is_registered else ErrorCode.STALE_BROKER_EPOCH
    if broker_epoch < own_broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    if broker_epoch == own_broker_epoch and not is_registered:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def is_overtaken(latest_correlation_id: int, correlation_id: int) -> bool:
    """Return whether a newer command of this controller and registration has already arrived (V30).

    A connection that the controller has replaced may still deliver requests after the new
    connection has delivered its first. Epochs do not always show the order of commands: a deletion
    overrides all epochs, and UpdateMetadata has no epoch for a deleted topic. Correlation ids rise
    from one connection to the next, as in Kafka's own controller.
    """
    behind = (latest_correlation_id - correlation_id) % _CORRELATION_IDS
    return 0 < behind < _CORRELATION_IDS // 2


def is_current(
    own_leader_epoch: int, own_partition_epoch: int, leader_epoch: int, partition_epoch: int
) -> bool:
    """Return whether a command for a partition is at least as new as the replica's state (V30)."""
    return (leader_epoch, partition_epoch) >= (own_leader_epoch, own_partition_epoch)


def stop_is_current(own_leader_epoch: int, leader_epoch: int) -> bool:
    """Return whether this broker obeys a StopReplica with this leader epoch (V30)."""
    return leader_epoch in (EPOCH_DURING_DELETE, NO_STOP_EPOCH) or leader_epoch >= own_leader_epoch


def topic_id_matches(own: TopicId, asked: TopicId) -> bool:
    """Return whether two topic ids may mean the same topic; an absent id matches every id (V23,
    G4).
    """
    return own == asked or ZERO_TOPIC_ID in (own, asked)


def placement(
    *,
    broker_id: int,
    own_topic_id: TopicId | None,
    offline: OfflineReplica | None,
    has_failed_directory: bool,
    topic_id: TopicId,
    leader_epoch: int,
    is_new: bool,
    leader: int,
    isr: Collection[int],
) -> Placement:
    """Return what this broker does with a replica that a command names (D3).

    `own_topic_id` is the topic id of the local log, None if no good log directory has a log.
    `offline` is the replica whose directory has failed in this process. `is_new` means that the
    controller creates the replica with this command.
    """
    if own_topic_id is not None:
        if topic_id_matches(own_topic_id, topic_id):
            return Placement.KEEP
        return Placement.OTHER_TOPIC
    is_member = leader == broker_id or broker_id in isr
    if (
        offline is not None
        and topic_id_matches(offline.topic_id, topic_id)
        and (is_member or leader_epoch <= offline.leader_epoch)
    ):
        # This may be a repeated command, whose first response was lost. The replica that the first
        # command created may have joined the ISR before its directory failed, and stays a member
        # until the controller learns of the failure.
        return Placement.OFFLINE
    if is_new:
        return Placement.CREATE
    if has_failed_directory:
        return Placement.OFFLINE
    return Placement.LOST if is_member else Placement.CREATE


def can_be_replaced(broker_id: int, isr: Collection[int]) -> bool:
    """Return whether a damaged replica can leave the ISR, because the ISR has other members (V68).

    This function is not for a replica outside the ISR, which truncates its damaged log and
    refetches. The only member of an ISR keeps its damaged log.
    """
    return broker_id in isr and len(isr) > 1


def missing_log_error(*, has_failed_directory: bool) -> ErrorCode:
    """Return the error of GetReplicaLogInfo if no good directory has the log (E6).

    A log that may be in a failed directory does not count as lost: the log may hold every record
    (D4).
    """
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.KAFKA_STORAGE_ERROR if has_failed_directory else error


def is_nameless_leftover(
    *,
    broker_id: int,
    own_topic_id: TopicId,
    is_empty: bool,
    is_new: bool,
    leader: int,
    isr: Iterable[int],
) -> bool:
    """Return whether a replica without a topic id must be removed: it may be of an earlier topic
    (V23).

    A crash lost the replica's topic id. A replica that has records, and that the command lists in
    the ISR, belongs to the topic of the command. The replicas of a new topic are an exception: the
    command lists them in the ISR, but they must be empty. A replica outside the ISR may be of this
    topic or an earlier one: leader epochs do not show to which topic a log belongs.
    """
    if own_topic_id != ZERO_TOPIC_ID:
        return False
    if is_new:
        return True
    return not is_empty and leader != broker_id and broker_id not in isr


def is_of_former_life(
    *,
    own_leader_epoch: int,
    latest_log_epoch: int,
    log_end_offset: int,
    first_leader_epoch: int,
    is_new: bool,
) -> bool:
    """Return whether a replica is of an earlier, removed partition with the same number (V71).

    An administrator can remove the highest partitions of a topic, and later add partitions with the
    same numbers. The removed and the present partition have the same topic id, but all leader
    epochs of the present partition are larger than those of the removed one. `own_leader_epoch` is
    the leader epoch of the last command that the broker obeyed, and `latest_log_epoch` the
    leader epoch of the last record; -1 means none. If both are -1, the log has no records. In that
    case the log is of the removed partition only if the command creates the replica but the log end
    is not 0.
    """
    known = max(own_leader_epoch, latest_log_epoch)
    if known >= 0:
        return known < first_leader_epoch
    return is_new and first_leader_epoch > 0 and log_end_offset > 0


def strays(
    hosted: Mapping[TopicPartition, TopicId],
    commanded: Mapping[TopicPartition, TopicId],
    kept_topics: Mapping[str, TopicId],
) -> list[TopicPartition]:
    """Return the replicas that a full LeaderAndIsr omits, or lists with another topic id (V35,
    V45).

    `kept_topics` are topics that the controller could not read; their replicas are no strays.
    """
    found = []
    for partition, own in hosted.items():
        asked = commanded.get(partition)
        if asked is None:
            asked = kept_topics.get(partition.topic)
        if asked is None or not topic_id_matches(own, asked):
            found.append(partition)
    return found


def deletion_waits(stray_count: int, hosted_count: int) -> bool:
    """Return whether the deletion of `stray_count` strays needs an operator's confirmation (V35).

    `hosted_count` is the number of the broker's replicas before the command, strays included.
    """
    return stray_count >= STRAYS_AT_LEAST and stray_count * 100 > hosted_count * STRAYS_PERCENT
