"""Partitions taken from topics: what is refused and why, what is due when (V7, V71).

Only the highest partitions go, so that numbers stay 0 to n-1: a request waits until all higher ones
are requested too. From then on the partition takes no more records; one that is to be drained goes
on being read until every group has come to its end. Then its state becomes a tombstone, which is
durable before anybody is told to delete, and when nobody alive has a replica any more it leaves the
topic's node, with the request. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidelog.controller import elections, growth, reassignment
from tidelog.controller.decision import RemovePartitions
from tidelog.controller.image import Image
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import is_internal_topic
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.remove_partitions import RemovePartitionsTopic


def plan(wanted: RemovePartitionsTopic, image: Image) -> dict[int, bool]:
    """The partitions to remove, and whether each is to be drained; raises KafkaError with the
    reason. Those that are being removed already may be asked for again."""
    closing = image.closing(wanted.name)
    if closing:
        topic = image.topics[wanted.name]
    else:
        topic = growth.changeable(wanted.name, image)
    now = len(topic.assignments)
    if wanted.count < 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {now} partitions and keeps at least one:"
            f" {wanted.count} cannot be left, at most {now - 1} can be removed;"
            " to remove all, delete it",
        )
    if wanted.count >= now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {now} partitions: fewer than that can be left, not"
            f" {wanted.count}",
        )
    for partition in range(wanted.count, now):
        reassignment.check_readable(TopicPartition(topic.name, partition), image)
    return dict.fromkeys(range(wanted.count, now), wanted.drain)


def refusal(topic_partition: TopicPartition, image: Image) -> str | None:
    """Why a request that was left in the store for one partition can never be carried out; None
    where it can, perhaps later."""
    name, partition = topic_partition
    if is_internal_topic(name):
        return f"the partitions of internal topic {name!r} cannot be changed"
    if name in image.unreadable:
        return None
    topic = image.topics.get(name)
    if topic is None:
        return f"there is no topic {name!r}"
    if partition not in topic.assignments:
        return f"topic {name!r} has no partition {partition}"
    if partition == 0:
        return f"topic {name!r} keeps at least one partition; to remove all, delete it"
    return None


def ready(name: str, image: Image) -> Iterator[int]:
    """The partitions that can go now, the highest first: nobody has to read them any more, and
    their states are known."""
    removal = image.removals[name]
    for partition in reversed(image.closing(name)):
        if TopicPartition(name, partition) in image.unreadable_states:
            return
        if removal.requested[partition] and partition not in removal.drained:
            return
        yield partition


def to_bury(name: str, image: Image) -> list[TopicPartition]:
    """Those that are ready and whose state is no tombstone yet."""
    found = []
    for partition in ready(name, image):
        topic_partition = TopicPartition(name, partition)
        state = image.states.get(topic_partition)
        if state is not None and not elections.is_tombstone(state):
            found.append(topic_partition)
    return found


def to_command(name: str, image: Image) -> list[TopicPartition]:
    """Those whose replicas are to be deleted now: the tombstone is durable, nobody was told."""
    removal = image.removals[name]
    found = []
    for partition in ready(name, image):
        topic_partition = TopicPartition(name, partition)
        state = image.states.get(topic_partition)
        is_buried = state is None or elections.is_tombstone(state)
        if is_buried and partition not in removal.commanded:
            found.append(topic_partition)
    return found


def to_close(name: str, image: Image) -> tuple[int, ...]:
    """Those that take no more records and are read on: what leaders are to know."""
    gone = dict.fromkeys(ready(name, image))
    return tuple(partition for partition in image.closing(name) if partition not in gone)


def to_drain(image: Image) -> list[TopicPartition]:
    """Those that wait for consumer groups."""
    return [
        TopicPartition(name, partition)
        for name, removal in image.removals.items()
        for partition in image.closing(name)
        if removal.requested[partition] and partition not in removal.drained
    ]


def last_write(name: str, image: Image) -> RemovePartitions | None:
    """What takes the partitions from the topic's node, once no replica of them is left."""
    removal, topic = image.removals[name], image.topics.get(name)
    if topic is None or not removal.done or image.is_deleting(name):
        return None
    partitions = tuple(sorted(removal.commanded))
    assignments = {
        partition: replicas
        for partition, replicas in topic.assignments.items()
        if partition not in removal.commanded
    }
    shrunk = replace(topic, assignments=assignments, version=topic.version + 1)
    return RemovePartitions(shrunk, partitions)


def has_work(image: Image) -> bool:
    """Whether anything of this is due without another event."""
    return any(
        removal.done
        or to_bury(name, image)
        or to_command(name, image)
        or to_close(name, image) != tuple(removal.closed)
        for name, removal in image.removals.items()
        if not image.is_deleting(name) and name in image.topics
    )


def accepted(
    wanted: Mapping[str, Mapping[int, bool]], image: Image
) -> tuple[dict[str, dict[int, bool]], dict[TopicPartition, str]]:
    """Requests left in the store: those that count, and those that cannot be done, with reasons."""
    good: dict[str, dict[int, bool]] = {}
    bad: dict[TopicPartition, str] = {}
    for name, partitions in wanted.items():
        for partition, drain in sorted(partitions.items()):
            topic_partition = TopicPartition(name, partition)
            reason = refusal(topic_partition, image)
            if reason is None:
                good.setdefault(name, {})[partition] = drain
            else:
                bad[topic_partition] = reason
    return good, bad
