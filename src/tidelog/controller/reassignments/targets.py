"""Validity of reassignment targets: which requests are rejected, and why (R1, R10, KIP-455).

This module judges one partition of AlterPartitionReassignments, or one entry of
`/admin/reassign_partitions`, against published state and the live brokers. Refusals are KafkaErrors
whose message names an acceptable request. `progress` carries out accepted requests.
"""

from __future__ import annotations

from tidelog.controller import records
from tidelog.controller.image import Image
from tidelog.controller.partitions.refusals import check_readable
from tidelog.controller.reassignments import transitions
from tidelog.controller.records import Topic
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition


def topic_of(topic_partition: TopicPartition, image: Image) -> Topic:
    """Return the topic of a partition that may be reassigned. Raises KafkaError otherwise."""
    topic = image.topics.get(topic_partition.topic)
    if topic is None and topic_partition.topic in image.unreadable:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"the nodes of topic {topic_partition.topic!r} cannot be read, it is left alone:"
            f" {image.unreadable[topic_partition.topic]}",
        )
    check_readable(topic_partition, image)
    if topic is None or topic_partition.partition not in topic.assignments:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}"
        )
    if image.is_deleting(topic.name):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} is being deleted"
        )
    if image.closing(topic.name):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"partitions of topic {topic.name!r} are being removed: ask again when that is done",
        )
    return topic


def check_target(
    topic_partition: TopicPartition,
    target: tuple[int, ...],
    image: Image,
    may_change_factor: bool = True,
) -> None:
    """Raise KafkaError unless an existing partition can be moved to the target now."""
    check_replicas(topic_partition, target, image, may_change_factor)
    move = image.move(topic_partition)
    if move is not None and records.target_of(image.assigned(topic_partition), move) != target:
        check_can_turn(topic_partition, image)


def check_minimum(
    topic_partition: TopicPartition, target: tuple[int, ...], minimum: int, image: Image
) -> None:
    """Raise KafkaError if a partition under reassignment may not get another target yet (R10).

    The number of original replicas must be at least `minimum`, the partition's effective minimum
    now.
    """
    move = image.move(topic_partition)
    if move is None or not move.original or target == move.original:
        return
    if records.target_of(image.assigned(topic_partition), move) == target:
        return
    if len(move.original) < minimum:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{topic_partition} is on the move from {list(move.original)}, fewer replicas than"
            f" min.insync.replicas, which is {minimum}: cancel that move first",
        )


def check_replicas(
    topic_partition: TopicPartition,
    target: tuple[int, ...],
    image: Image,
    may_change_factor: bool = True,
) -> None:
    """Raise KafkaError unless an existing partition could have these replicas."""
    fault = None
    dead = [replica for replica in target if replica not in image.brokers]
    if not target:
        fault = "is given no replicas: at least one is needed"
    elif len(dict.fromkeys(target)) != len(target):
        fault = f"names a broker twice: {list(target)}"
    elif min(target) < 0:
        fault = f"names a negative broker id: {list(target)}"
    elif dead:
        fault = f"names brokers {dead}, live brokers are {sorted(image.brokers)}"
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{topic_partition} {fault}")
    move = image.move(topic_partition)
    assigned = image.assigned(topic_partition)
    factor = len(assigned)
    if move is not None:
        factor = len(move.original) or factor - len(move.adding)
    if not may_change_factor and len(target) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{topic_partition} has {factor} replicas and the request, which does not allow that"
            f" their number changes, names {len(target)}",
        )


def check_expected(
    topic_partition: TopicPartition, expected: tuple[int, ...], image: Image
) -> None:
    """Raise KafkaError if the partition no longer has the replicas that a request expects (R18)."""
    assigned = image.assigned(topic_partition)
    if expected and expected != assigned:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{topic_partition} has the replicas {list(assigned)}, and the request was made for"
            f" {list(expected)}: make it again from what there is",
        )


def is_repeated(
    topic_partition: TopicPartition,
    expected: tuple[int, ...],
    target: tuple[int, ...],
    image: Image,
) -> bool:
    """Return whether a request repeats the present reassignment, as after a lost response."""
    assigned, move = image.assigned(topic_partition), image.move(topic_partition)
    if move is None:
        return assigned == target
    return (move.original, records.target_of(assigned, move)) == (expected, target)


def check_not_cancelled(topic_partition: TopicPartition, image: Image) -> None:
    """Raise KafkaError while all reassignments are being cancelled (R2)."""
    if image.cancels_all:
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"all reassignments are being cancelled, so none of {topic_partition} begins: ask again"
            " when /admin/cancel_reassignment_in_progress is gone",
        )


def check_not_frozen(topic_partition: TopicPartition, image: Image) -> None:
    """Raise KafkaError while no reassignment may begin (R11)."""
    if image.is_frozen:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"reassignments are frozen, so none of {topic_partition} begins: ask again when they"
            " are unfrozen and /admin/reassign_cancel is gone",
        )


def check_can_turn(topic_partition: TopicPartition, image: Image) -> None:
    """Raise KafkaError if a reassignment has reached its target and can only be completed."""
    if image.is_completing(topic_partition):
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"a reassignment of {topic_partition} is being completed: ask again when it is done",
        )


def original_of(topic_partition: TopicPartition, image: Image) -> tuple[int, ...]:
    """Return the original replicas, to which a cancellation returns.

    Raises KafkaError if the partition has no reassignment that can be cancelled.
    """
    move = image.move(topic_partition)
    if move is None:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic_partition} is not being reassigned"
        )
    if not move.original:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the former replicas of {topic_partition} are not recorded: name them to move it back",
        )
    if transitions.goes_back(image.assigned(topic_partition), move):
        return move.original  # clients repeat cancellations on timeout
    check_can_turn(topic_partition, image)
    check_stays_online(topic_partition, move.original, image)
    return move.original


def goes_offline(
    topic_partition: TopicPartition, original: tuple[int, ...], image: Image
) -> list[int]:
    """Return replicas without which a partition would be offline after a cancellation (R6).

    The result is empty if an original replica is alive and in sync, or if no in-sync replica is
    alive. In both cases the cancellation does not take the partition offline.
    """
    state = image.states.get(topic_partition)
    if state is None or any(member in original for member in state.isr):
        return []
    return [member for member in state.isr if member in image.brokers]


def check_stays_online(
    topic_partition: TopicPartition, original: tuple[int, ...], image: Image
) -> None:
    """Raise KafkaError if a cancellation would take a partition offline (R6)."""
    online = goes_offline(topic_partition, original, image)
    if online:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"{topic_partition} would go offline: of its original replicas {list(original)} none is"
            f" in sync, and {online} are; name the originals as target to move it back when they"
            " are in sync",
        )
