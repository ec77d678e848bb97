"""Which commands of a controller a broker obeys, and what they mean for its logs.

Holds V30 (epochs), D3 (when a missing replica may be created), V23 and G4 (topic ids), V35 and V45
(strays of a full command). Commands for different partitions are independent. Does not know
requests, logs or directories: it is told what is there, and answers what to do. Answers of
AlterPartition and commands travel on different channels, so an older one may come later; so do
commands, where one connection took the place of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition

#: StopReplica's leader epoch when the topic is being deleted: overrides every epoch (V30).
EPOCH_DURING_DELETE = -2
#: StopReplica of an old controller: no epoch to compare.
NO_STOP_EPOCH = -1

#: Correlation ids begin again behind the highest; of two that are further apart than half of them,
#: the lower is the later.
_CORRELATION_IDS = 1 << 31

#: More strays than this share of a broker's replicas, and at least so many, wait for a word (V35).
STRAYS_PERCENT = 10
STRAYS_AT_LEAST = 100


class Placement(Enum):
    """What a command finds on this broker, and what follows."""

    #: The replica is here.
    KEEP = "keep"
    #: It is not here and may be made, empty.
    CREATE = "create"
    #: Not here, though it leads or is in sync: it was lost, an empty one must not stand in (D3).
    LOST = "lost"
    #: A replica of another topic of that name is here (V23).
    OTHER_TOPIC = "other topic"


def request_error(
    *,
    known_controller_epoch: int,
    controller_epoch: int,
    own_broker_epoch: int,
    is_registered: bool,
    broker_epoch: int,
) -> ErrorCode:
    """Whether a command is refused whole (V30).

    `own_broker_epoch` is that of the latest registration, also when it has ended: then only a
    newer one is obeyed. An epoch above our own is the next registration's, which the controller
    may learn of before we do.
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
    """Whether a later command of the same controller, for the same registration, came before (V30).

    A connection that the controller has given up may deliver what was sent on it after the
    connection that took its place has delivered. Epochs do not tell: a deletion overrides them,
    and metadata has none for a topic that is gone. Correlation ids rise over both connections, as
    they do in Kafka's own controller.
    """
    behind = (latest_correlation_id - correlation_id) % _CORRELATION_IDS
    return 0 < behind < _CORRELATION_IDS // 2


def is_current(
    own_leader_epoch: int, own_partition_epoch: int, leader_epoch: int, partition_epoch: int
) -> bool:
    """Whether a command for a partition is obeyed: not older than the replica's own state (V30)."""
    return (leader_epoch, partition_epoch) >= (own_leader_epoch, own_partition_epoch)


def stop_is_current(own_leader_epoch: int, leader_epoch: int) -> bool:
    """Whether a StopReplica is obeyed (V30)."""
    return leader_epoch in (EPOCH_DURING_DELETE, NO_STOP_EPOCH) or leader_epoch >= own_leader_epoch


def topic_id_matches(own: TopicId, asked: TopicId) -> bool:
    """Whether two topic ids may mean the same topic: an absent one says nothing (V23, G4)."""
    return own == asked or ZERO_TOPIC_ID in (own, asked)


def placement(
    *,
    broker_id: int,
    own_topic_id: TopicId | None,
    topic_id: TopicId,
    is_new: bool,
    leader: int,
    isr: Iterable[int],
) -> Placement:
    """What to do for a replica that a command names, every log directory being good (D3).

    `own_topic_id` is that of the log here, None where there is none. `is_new` is the controller's
    word that it makes the replica now.
    """
    if own_topic_id is not None:
        if topic_id_matches(own_topic_id, topic_id):
            return Placement.KEEP
        return Placement.OTHER_TOPIC
    if is_new:
        return Placement.CREATE
    if leader == broker_id or broker_id in isr:
        return Placement.LOST
    return Placement.CREATE


def is_nameless_leftover(
    *,
    broker_id: int,
    own_topic_id: TopicId,
    is_empty: bool,
    is_new: bool,
    leader: int,
    isr: Iterable[int],
) -> bool:
    """Whether a replica may be of an earlier topic of that name, so that it has to make room (V23).

    Its topic id did not survive a crash. One that has been in sync is the commanded topic's: nobody
    else is called in sync, but for those that a new topic begins with. Of any other it cannot be
    known, and leader epochs of two topics look alike.
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
    """Whether a replica is of a partition that was removed, and whose number is in use again (V71).

    The topic's id is the same; leader epochs tell: those of the present life are all above those of
    the former. `own_leader_epoch` is that of the last command obeyed, `latest_log_epoch` that of
    the last record, each -1 for none. A log with neither has no records; it makes room where an
    empty one is to be made.
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
    """Replicas here that a full command does not list, or lists under another topic id (V35, V45).

    `kept_topics` are topics that the controller could not read: nothing of them is stray.
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
    """Whether so many strays at once are deleted only on an operator's word (V35).

    `hosted_count` counts the replicas of the broker before, strays included.
    """
    return stray_count >= STRAYS_AT_LEAST and stray_count * 100 > hosted_count * STRAYS_PERCENT
