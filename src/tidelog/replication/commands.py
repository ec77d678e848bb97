"""The controller's commands that a broker obeys, and their meaning for the broker's logs.

This module implements V30 (epochs), D3 (when a missing replica may be created), V23 and G4 (topic
ids), V35 and V45 (strays of a full command). Commands for different partitions are independent. The
module does not know requests, logs or directories: the caller passes their state, and gets back the
action to take. AlterPartition responses and commands travel on different channels, so an older
message may arrive after a newer one. Commands may also arrive out of order if one connection
replaced another.
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
#: Leader epoch of a StopReplica from an old controller, which sends no epoch to compare.
NO_STOP_EPOCH = -1

#: Number of different correlation ids; after the highest id, correlation ids start again from the
#: lowest. If two correlation ids differ by more than half of `_CORRELATION_IDS`, the lower id is
#: the later id.
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
    """Whether a commanded replica is on this broker, and so how the broker obeys the command."""

    #: The replica is on this broker.
    KEEP = "keep"
    #: The replica is not on this broker, and may be created empty.
    CREATE = "create"
    #: The replica is not on this broker, although it leads or is in sync: its log was lost, and an
    #: empty replica must not take its place (D3).
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
    """Return the error that rejects a whole command, NONE if the command is obeyed (V30).

    `own_broker_epoch` is the epoch of the latest registration. If the latest registration has
    ended, the broker obeys only commands for a newer epoch. An epoch above this broker's own
    belongs to the next registration, of which the controller may learn before this broker.
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

    A connection that the controller has given up may still deliver requests after the connection
    that replaced it. Epochs do not show the order of commands: a deletion overrides all epochs, and
    metadata has no epoch for a topic that is gone. Correlation ids rise over both connections, as
    in Kafka's own controller.
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
    """Return whether two topic ids may mean the same topic; an absent id matches any (V23, G4)."""
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
        # The controller repeats a command that creates a replica if its response was lost. The
        # created replica may have joined the ISR before its directory failed, and stays a member
        # until the controller learns of the failure.
        return Placement.OFFLINE
    if is_new:
        return Placement.CREATE
    if has_failed_directory:
        return Placement.OFFLINE
    return Placement.LOST if is_member else Placement.CREATE


def can_be_replaced(broker_id: int, isr: Collection[int]) -> bool:
    """Return whether a damaged replica can leave the ISR, because the ISR has other members (V68).

    A replica outside the ISR truncates its damaged log. The only member of an ISR keeps its damaged
    log.
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
    """Return whether a replica without topic id may be of an earlier topic and must go (V23).

    A replica without a topic id lost the id in a crash. If a replica has records, and the command
    names it in the ISR, the replica belongs to the commanded topic. The replicas of a new topic are
    empty, although the command names them in the ISR. A replica outside the ISR may be of the
    commanded or an earlier topic, because leader epochs do not show to which topic a log belongs.
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

    Both incarnations of the partition have the same topic id, but all leader epochs of the present
    incarnation are above those of the former incarnation. `own_leader_epoch` is the epoch of the
    last command obeyed, `latest_log_epoch` the epoch of the last record; -1 means that there is
    none. If `own_leader_epoch` and `latest_log_epoch` are -1, the log has no records, and belongs
    to the removed partition only if the command creates the replica.
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
    """Return replicas that a full command omits, or lists under another topic id (V35, V45).

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
