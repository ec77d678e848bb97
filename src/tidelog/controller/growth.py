"""More partitions for a topic that exists: what is refused and why, what comes of it (V70).

`plan` turns one topic of a CreatePartitions request (KIP-195) into its new node and the first
states of the partitions that it adds; those that exist stay as they are. A number that was removed
before begins above the epochs of its former life (V71). Refusals are KafkaErrors whose message says
what would be right. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.controller import elections, placement, topics
from tidelog.controller.changes import Topic
from tidelog.controller.image import Image
from tidelog.controller.liveness import Brokers
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import is_internal_topic
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.wire.messages.create_partitions import CreatePartitionsTopic


@dataclass(frozen=True, slots=True)
class Growth:
    """A topic with more partitions, to be written over the version before; states of the new."""

    topic: Topic
    states: Mapping[int, PartitionState]


def plan(
    wanted: CreatePartitionsTopic, image: Image, seed: int, controller_epoch: int, room: int
) -> Growth:
    """The topic as it will be; raises KafkaError with the reason.

    `room`: partitions that this request may still make.
    """
    topic = changeable(wanted.name, image)
    existing = topic.assignments
    added = _check_count(wanted, topic)
    topics.check_partition_count(added, room)
    factor = len(existing[0])
    topics.check_size(wanted.count, wanted.count * factor, max(image.brokers, default=0))
    if not wanted.assignments:
        live = list(image.brokers.values())
        new = placement.place(live, added, factor, seed, existing)
    else:
        chosen = [tuple(one.broker_ids) for one in wanted.assignments]
        new = explicit(chosen, added, len(existing), factor, image.brokers)
    states = {}
    for partition, replicas in new.items():
        former = image.former.get(TopicPartition(topic.name, partition))
        state = elections.first_state(replicas, image.brokers, controller_epoch, former)
        assert state is not None, "all its replicas are alive"
        states[partition] = state
    grown = replace(topic, assignments={**existing, **new}, version=topic.version + 1)
    return Growth(grown, states)


def changeable(name: str, image: Image) -> Topic:
    """The topic, if its number of partitions can be changed now; raises KafkaError."""
    if is_internal_topic(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"the partitions of internal topic {name!r} cannot be changed: what is in them goes by"
            " their number",
        )
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if image.is_deleting(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} is being deleted")
    closing = image.closing(name)
    if closing:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"partitions {closing.start} to {closing.stop - 1} of topic {name!r} are being removed:"
            " wait for the end of it",
        )
    if topic.is_reassigning:
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"partitions of topic {name!r} are being reassigned: wait for the end of it, or"
            " cancel it",
        )
    if sorted(topic.assignments) != list(range(len(topic.assignments))) or not topic.assignments:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"partitions of topic {name!r} are not numbered from 0 on: none can be added or"
            " removed",
        )
    return topic


def _check_count(wanted: CreatePartitionsTopic, topic: Topic) -> int:
    """How many are to be added."""
    now = len(topic.assignments)
    if wanted.count == now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {now} partitions already"
        )
    if wanted.count < now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {now} partitions, more than the {wanted.count} asked for:"
            " this request only adds; RemovePartitions takes the highest away",
        )
    return wanted.count - now


def explicit(
    chosen: Sequence[tuple[int, ...]], added: int, first: int, factor: int, brokers: Brokers
) -> dict[int, tuple[int, ...]]:
    """What the caller chose for the new partitions, if it can be (V5)."""
    if len(chosen) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(chosen)} assignments for {added} new partitions: one for each expected",
        )
    new = dict(enumerate(chosen, first))
    for partition, replicas in new.items():
        topics.check_replicas(partition, replicas, factor)
        unknown = [one for one in replicas if one not in brokers]
        if unknown:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {partition} names brokers {unknown}, live brokers are"
                f" {sorted(brokers)}",
            )
    return new
