"""Removal of partitions from topics: which requests are rejected, which steps are due (V7, V71).

Only the highest partitions are removed, so that numbers stay 0 to n-1. A request waits until all
higher partitions are requested too. A partition to be removed accepts no more records once the
removal of all higher partitions is requested, too. A partition that is to be drained stays readable
until every consumer group has read it to the end. Then the controller replaces the partition's
state by a tombstone. When the tombstone is durable, the controller commands the brokers to delete
their replicas. When no live broker has a replica, the controller removes the partition from the
topic's node, together with the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from tidelog.controller import lifecycle
from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.orders import Order, Rank
from tidelog.controller.partitions import addition, refusals
from tidelog.controller.records import Removal, Topic
from tidelog.controller.settlement import Settlement
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.writes import Outcome, Write, Written
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import is_internal_topic
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.remove_partitions import (
    RemovePartitionsRequest,
    RemovePartitionsResponse,
    RemovePartitionsTopic,
    RemovePartitionsTopicResult,
)


@dataclass(frozen=True, slots=True)
class RemovePartitionsAsked(Event):
    """A client's request to remove the highest partitions of topics."""

    ticket: int
    request: RemovePartitionsRequest


@dataclass(frozen=True, slots=True)
class RemovalsRead(Event):
    """Event: the controller has read the requests in `/admin/partitions_remove` (V7).

    Each says whether consumer groups must first read the partition to its end.
    """

    wanted: Mapping[str, Mapping[int, bool]]


@dataclass(frozen=True, slots=True)
class DrainRead(Event):
    """Event: every consumer group with committed offsets has read these partitions to the end
    (V71).
    """

    topic_partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class RemovalsRequested(Change):
    """Change: all stored requests to remove partitions, as read (V7, V71).

    Each says whether consumer groups must first read the partition to its end.
    """

    wanted: Mapping[str, Mapping[int, bool]]

    def apply(self, image: Image) -> None:
        """Replace the image's removal requests by the requests that were read.

        Requests that are no longer stored are dropped, unless brokers were already commanded to
        delete the replicas.
        """
        for name in list(image.removals):
            removal = image.removals[name]
            asked = self.wanted.get(name, {})
            for partition in list(removal.requested):
                kept = partition in removal.commanded or partition in removal.by_edit
                if partition not in asked and not kept:
                    del removal.requested[partition]
                    removal.drained.pop(partition, None)
            if not removal.requested and not removal.closed:
                del image.removals[name]
        for name, partitions in self.wanted.items():
            image.removals.setdefault(name, Removal()).requested.update(partitions)


@dataclass(frozen=True, slots=True)
class RemovalsAdded(Change):
    """Change: further removals of partitions are requested.

    `by_edit` means that an operator requested them by editing the topic's node.
    """

    name: str
    wanted: Mapping[int, bool]
    by_edit: bool = False

    def apply(self, image: Image) -> None:
        """Add these removal requests to the removal requests in the image."""
        removal = image.removals.setdefault(self.name, Removal())
        removal.requested.update(self.wanted)
        if self.by_edit:
            removal.by_edit.update(dict.fromkeys(self.wanted))


@dataclass(frozen=True, slots=True)
class PartitionsDrained(Change):
    """Change: every consumer group has read these partitions, whose removal is requested."""

    name: str
    partitions: Sequence[int]

    def apply(self, image: Image) -> None:
        """Record that no consumer group has to read these partitions any more."""
        removal = image.removals.get(self.name)
        if removal is not None:
            removal.drained.update(dict.fromkeys(self.partitions))


@dataclass(frozen=True, slots=True)
class RemovalCommanded(Change):
    """Change: brokers were commanded to delete partitions of a topic, and have not acknowledged
    that.
    """

    name: str
    partitions: Sequence[int]
    replicas: Mapping[int, Sequence[TopicPartition]]

    def apply(self, image: Image) -> None:
        """Record the replicas whose deletion is not acknowledged."""
        removal = image.removals[self.name]
        assert all(broker_id in image.brokers for broker_id in self.replicas), f"dead: {self}"
        assert all(number in removal.requested for number in self.partitions), (
            f"not requested: {self}"
        )
        removal.commanded.update(dict.fromkeys(self.partitions))
        for broker_id, held in self.replicas.items():
            removal.waiting.setdefault(broker_id, {}).update(dict.fromkeys(held))


@dataclass(frozen=True, slots=True)
class PartitionsClosed(Change):
    """The closed partitions of a topic, whose leaders were commanded to accept no more records.

    Partitions of the topic that are not in `partitions` accept records.
    """

    name: str
    partitions: Sequence[int]

    def apply(self, image: Image) -> None:
        """Record which partitions of the topic are closed."""
        removal = image.removals[self.name]
        removal.closed = dict.fromkeys(self.partitions)
        if not removal.requested and not removal.closed:
            del image.removals[self.name]


@dataclass(frozen=True, slots=True)
class PartitionsRemoved(Change):
    """A topic no longer has these partitions (V71).

    The last states of the partitions stay in the image, as states of former incarnations.
    """

    topic: Topic
    partitions: Sequence[int]

    def apply(self, image: Image) -> None:
        """Drop the partitions, and the requests to remove them."""
        name, left = self.topic.name, len(self.topic.assignments)
        assert all(partition >= left for partition in self.partitions), f"not the highest: {self}"
        image.topics[name] = self.topic
        removal = image.removals.get(name, Removal())
        for partition in self.partitions:
            image.remove_partition(TopicPartition(name, partition))
            removal.forget(partition)
        if not removal.requested and not removal.closed:
            image.removals.pop(name, None)


@dataclass(frozen=True, slots=True)
class AdvanceRemoval(Order):
    """Command leaders to close or reopen partitions, and brokers to delete replicas.

    The StopReplica carries the leader epoch of the tombstone, so brokers keep replicas of a later
    incarnation (V71).
    """

    redirected: Sequence[TopicPartition]
    ended: Sequence[TopicPartition]
    #: Partitions whose replicas a broker deletes, by broker id.
    replicas: Mapping[int, Sequence[TopicPartition]]
    leader_epochs: Mapping[TopicPartition, int]

    rank: ClassVar[Rank] = Rank.PARTITION_REMOVAL

    def give(self, builder: CommandBuilder) -> None:
        """Add roles, metadata of removed partitions, and StopReplicas to the brokers' commands."""
        for topic_partition in self.redirected:
            builder.send_role(topic_partition, is_new=False)
        for topic_partition in self.ended:
            builder.send_metadata(topic_partition)
        for broker_id, held in self.replicas.items():
            for topic_partition in held:
                epoch = self.leader_epochs[topic_partition]
                builder.delete_replica(broker_id, topic_partition, epoch)


@dataclass(frozen=True, slots=True)
class QueueRemovals(Write):
    """Write `/admin/partitions_remove/T/P` for each partition to remove.

    The node also says whether consumer groups must first read the partition to the end.
    """

    name: str
    #: By partition number, whether every consumer group must have read the partition before its
    #: removal.
    wanted: Mapping[int, bool]

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Record that the partitions are to be removed."""
        if isinstance(outcome, Written):
            settlement.apply(RemovalsAdded(self.name, self.wanted))


@dataclass(frozen=True, slots=True)
class RemovePartitions(Write):
    """Remove partitions from a topic's node, together with the requests for their removal (V71)."""

    #: The topic as the write leaves it, without the removed partitions.
    topic: Topic
    partitions: tuple[int, ...]

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Drop the partitions from the image."""
        if isinstance(outcome, Written):
            settlement.apply(PartitionsRemoved(self.topic, self.partitions))
        else:
            addition.number_unknown(self.topic.name, settlement)


def removals_read(event: RemovalsRead, image: Image) -> dict[TopicPartition, str]:
    """Apply stored removal requests to the image; return impossible requests, with reasons."""
    good, bad = accepted(event.wanted, image)
    image.apply(RemovalsRequested(good))
    return bad


def drain_read(event: DrainRead, image: Image) -> None:
    """Record the partitions that consumer groups have read to the end."""
    for name, partition in event.topic_partitions:
        image.apply(PartitionsDrained(name, (partition,)))


def write_due(draft: Draft) -> None:
    """Write the due steps of partitions under removal.

    A partition ends when its state node holds a tombstone. The topic's node is then written without
    the partitions whose replicas all live brokers have deleted.
    """
    image, controller_epoch = draft.image, draft.settings.controller_epoch
    for name in image.removals:
        write = last_write(name, image)
        if write is not None and not draft.has_changed((name,)):
            draft.resized[name] = None
            draft.add(write)
        for topic_partition in to_bury(name, image):
            state = image.states[topic_partition]
            last = lifecycle.tombstone(state, controller_epoch)
            draft.write_state(WritePartitionState(topic_partition, last, state.partition_epoch))


def remove_partitions(asked: RemovePartitionsAsked, draft: Draft) -> bool:
    """Request the removal of the highest partitions of each topic in a client's request.

    Returns False, and leaves the request to a later step, if another request in the same step of
    the controller changes the number of a topic's partitions.
    """
    request = asked.request
    counts = Counter(wanted.name for wanted in request.topics)
    if draft.has_changed(counts):
        return False
    answer = Answer[str](asked.ticket, Precedence.REMOVE_PARTITIONS, _response)
    draft.answer(answer)
    for wanted in request.topics:
        result = Result(wanted.name)
        answer.results.append(result)
        try:
            refusals.check_resizable(wanted.name, counts[wanted.name], draft)
            planned = plan(wanted, draft.image)
        except KafkaError as error:
            result.refuse(error)
            continue
        if not request.validate_only:
            draft.resized[wanted.name] = None
            result.write = draft.add(QueueRemovals(wanted.name, planned))
    return True


def _response(results: Sequence[Result[str]]) -> RemovePartitionsResponse:
    return RemovePartitionsResponse(
        results=[
            RemovePartitionsTopicResult(result.subject, result.error, result.message)
            for result in results
        ]
    )


def settle(settlement: Settlement) -> None:
    """Command leaders to close partitions, and brokers to delete replicas of ended partitions.

    A partition has ended when its tombstone is durable.
    """
    image = settlement.image
    for name in list(image.removals):
        if name not in image.topics or image.is_deleting(name):
            continue
        closed, closing = image.removals[name].closed, to_close(name, image)
        redirected = tuple(
            TopicPartition(name, partition)
            for partition in dict.fromkeys((*closing, *closed))
            if partition not in closing or partition not in closed
        )
        ended = to_command(name, image)
        replicas = _live_replicas(ended, image)
        if ended:
            numbers = tuple(topic_partition.partition for topic_partition in ended)
            settlement.apply(RemovalCommanded(name, numbers, replicas))
        settlement.apply(PartitionsClosed(name, closing))
        if redirected or ended:
            epochs = {
                topic_partition: image.states[topic_partition].leader_epoch
                for topic_partition in ended
                if topic_partition in image.states
            }
            settlement.orders.append(AdvanceRemoval(redirected, ended, replicas, epochs))


def _live_replicas(
    topic_partitions: Sequence[TopicPartition], image: Image
) -> dict[int, list[TopicPartition]]:
    """Return the replicas on live brokers of partitions that have a state."""
    held: dict[int, list[TopicPartition]] = {}
    for topic_partition in topic_partitions:
        if topic_partition in image.states:
            for replica in image.replicas(topic_partition):
                if replica in image.brokers:
                    held.setdefault(replica, []).append(topic_partition)
    return held


def plan(wanted: RemovePartitionsTopic, image: Image) -> dict[int, bool]:
    """Return the partitions to remove, and whether each is to be drained.

    Raises KafkaError with the reason of a refusal. Partitions that are already being removed may be
    requested again.
    """
    closing = image.closing(wanted.name)
    if closing:
        topic = image.topics[wanted.name]
    else:
        topic = addition.changeable(wanted.name, image)
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
        refusals.check_readable(TopicPartition(topic.name, partition), image)
    return dict.fromkeys(range(wanted.count, now), wanted.drain)


def refusal(topic_partition: TopicPartition, image: Image) -> str | None:
    """Return why a stored request for one partition can never be carried out.

    Returns None if the request can be carried out, perhaps later.
    """
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
    """Yield the partitions that can be removed now, the highest first.

    A partition is ready for removal if its state is readable and no consumer group has to read it
    any more.
    """
    removal = image.removals[name]
    for partition in reversed(image.closing(name)):
        if TopicPartition(name, partition) in image.unreadable_states:
            return
        if removal.requested[partition] and partition not in removal.drained:
            return
        yield partition


def to_bury(name: str, image: Image) -> list[TopicPartition]:
    """Return partitions that are ready for removal and whose state is not a tombstone yet."""
    found = []
    for partition in ready(name, image):
        topic_partition = TopicPartition(name, partition)
        state = image.states.get(topic_partition)
        if state is not None and not lifecycle.is_tombstone(state):
            found.append(topic_partition)
    return found


def to_command(name: str, image: Image) -> list[TopicPartition]:
    """Return partitions whose replicas are to be deleted now.

    The result has partitions with a durable tombstone, of which no broker was commanded to delete a
    replica yet.
    """
    removal = image.removals[name]
    found = []
    for partition in ready(name, image):
        topic_partition = TopicPartition(name, partition)
        state = image.states.get(topic_partition)
        is_buried = state is None or lifecycle.is_tombstone(state)
        if is_buried and partition not in removal.commanded:
            found.append(topic_partition)
    return found


def to_close(name: str, image: Image) -> tuple[int, ...]:
    """Return the partitions whose leaders accept no more records and still serve consumers."""
    gone = dict.fromkeys(ready(name, image))
    return tuple(partition for partition in image.closing(name) if partition not in gone)


def to_drain(image: Image) -> list[TopicPartition]:
    """Return the partitions that wait for consumer groups."""
    return [
        TopicPartition(name, partition)
        for name, removal in image.removals.items()
        for partition in image.closing(name)
        if removal.requested[partition] and partition not in removal.drained
    ]


def last_write(name: str, image: Image) -> RemovePartitions | None:
    """Return the write that removes partitions from the topic's node.

    Returns None while a live broker still has a replica of the partitions.
    """
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
    """Return whether the next decision can take a step in the removal of some partition."""
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
    """Return the stored requests that are possible, and the impossible requests with reasons."""
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
