"""Deletion of topics: requests, commands to delete, and the removal of the nodes (V8, V22).

A topic to delete is queued below `/admin/delete_topics`. The controller commands every live broker
with replicas of the topic to delete them. When all brokers have acknowledged, the topic's nodes are
removed, and the request's node last. A client gets its response when the nodes are gone, or when
its timeout is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

from tidelog.controller.answers import Result
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.commands import EPOCH_DURING_DELETE
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.orders import Order, Rank
from tidelog.controller.records import Deletion, Topic
from tidelog.controller.settings import TopicDefaults
from tidelog.controller.settlement import Settlement
from tidelog.controller.topics.changes import TopicGone
from tidelog.controller.writes import Outcome, Write
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import is_internal_topic
from tidelog.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


@dataclass(frozen=True, slots=True)
class DeletionsRead(Event):
    """The topic names below `/admin/delete_topics` (V8)."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeleteTopicsAsked(Event):
    """A client's request to delete topics."""

    ticket: int
    request: DeleteTopicsRequest


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """Notice: the nodes of a deleted topic are gone."""

    name: str


@dataclass(frozen=True, slots=True)
class UnreadableTopicDeleted:
    """Notice: a topic is deleted although its node cannot be read."""

    name: str


@dataclass(frozen=True, slots=True)
class DeletionRequested(Change):
    """Change: a topic is queued for deletion, because `/admin/delete_topics/T` exists."""

    name: str

    def apply(self, image: Image) -> None:
        """Mark the topic as being deleted."""
        image.deletions.setdefault(self.name, Deletion())


@dataclass(frozen=True, slots=True)
class DeletionCommanded(Change):
    """Brokers were commanded to delete a topic; `replicas` are not yet acknowledged as deleted."""

    name: str
    replicas: Mapping[int, tuple[TopicPartition, ...]]

    def apply(self, image: Image) -> None:
        """Record the replicas whose deletion is not acknowledged."""
        assert all(broker_id in image.brokers for broker_id in self.replicas), f"dead: {self}"
        waiting = {broker_id: dict.fromkeys(held) for broker_id, held in self.replicas.items()}
        image.deletions[self.name] = Deletion(commanded=True, waiting=waiting)


@dataclass(frozen=True, slots=True)
class DeleteTopicReplicas(Order):
    """Command brokers to delete the replicas of a topic, and to drop its partitions.

    If the topic's node cannot be read, its replicas are unknown: every broker gets a full command,
    and sets replicas of the topic aside as strays (V35).
    """

    name: str
    topic_partitions: Sequence[TopicPartition]
    replicas: Mapping[int, tuple[TopicPartition, ...]]
    is_unreadable: bool

    rank: ClassVar[Rank] = Rank.TOPIC_DELETION

    def give(self, builder: CommandBuilder) -> None:
        """Add the StopReplicas, and the metadata of the deleted partitions, to the commands."""
        for topic_partition in self.topic_partitions:
            builder.send_metadata(topic_partition)
        for broker_id, held in self.replicas.items():
            for topic_partition in held:
                builder.delete_replica(broker_id, topic_partition, EPOCH_DURING_DELETE)
        if self.is_unreadable:
            builder.send_everything_to_all()


@dataclass(frozen=True, slots=True)
class QueueDeletion(Write):
    """Write: create `/admin/delete_topics/T`, which queues a topic for deletion."""

    name: str

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Mark the topic as being deleted, even if another writer queued it."""
        settlement.apply(DeletionRequested(self.name))
        settlement.agenda.look_at_requests(settlement.image)


@dataclass(frozen=True, slots=True)
class RemoveTopic(Write):
    """Remove a deleted topic's nodes, its configuration, and last the request to delete it.

    `topic` is None if its node could not be read.
    """

    name: str
    topic: Topic | None

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Drop the topic from the image."""
        settlement.apply(TopicGone(self.name))
        settlement.notices.add(TopicRemoved(self.name))


@dataclass(frozen=True, slots=True)
class ForgetDeletion(Write):
    """Remove the stored deletion request of a topic that cannot be deleted."""

    name: str


@dataclass(slots=True)
class DeletedTopic:
    """One topic of a DeleteTopics request, with its name and id, as far as they are known."""

    name: str | None
    topic_id: TopicId


@dataclass(slots=True)
class DeleteTopicsAnswer:
    """The answer to DeleteTopics, due when the topics are gone or the client's timeout is over."""

    ticket: int
    results: list[Result[DeletedTopic]] = field(default_factory=list)
    #: Topics whose nodes have not been removed yet.
    waiting: dict[str, None] = field(default_factory=dict)

    def copy(self) -> DeleteTopicsAnswer:
        """Return an independent copy."""
        return DeleteTopicsAnswer(
            self.ticket, [replace(result) for result in self.results], dict(self.waiting)
        )

    def give_up(self) -> None:
        """End the wait because the client's timeout is over; the deletion goes on."""
        for result in self.results:
            if result.subject.name in self.waiting:
                result.error = ErrorCode.REQUEST_TIMED_OUT
                result.message = "the deletion goes on"
        self.waiting.clear()

    def message(self) -> DeleteTopicsResponse:
        """Return the DeleteTopics response with the results that are known so far."""
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=result.subject.name,
                    topic_id=result.subject.topic_id,
                    error_code=result.error,
                    error_message=result.message,
                )
                for result in self.results
            ]
        )


class Deletions:
    """The topic deletions of one term, and the clients that wait for them."""

    __slots__ = ("_forgotten", "_given_up", "_new", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[DeleteTopicsAnswer] = []
        #: Answers to the requests that the decision in flight serves.
        self._new: list[DeleteTopicsAnswer] = []
        #: Numbers (tickets) of requests whose timeout was over before the decision.
        self._given_up: dict[int, None] = {}
        #: Stored deletion requests of topics that cannot be deleted, for the decision under
        #: construction.
        self._forgotten: dict[str, None] = {}

    def read(self, event: DeletionsRead, draft: Draft) -> None:
        """Apply deletion requests from the store (V8)."""
        image = draft.image
        for name in event.names:
            exists = name in image.topics or name in image.unreadable
            exists = exists and not is_internal_topic(name)
            if exists and draft.settings.topic_defaults.deletion_enabled:
                image.apply(DeletionRequested(name))
            else:
                self._forgotten[name] = None

    def delete_topics(self, asked: DeleteTopicsAsked, draft: Draft) -> None:
        """Queue topics for deletion (V22); the response follows when the topics are gone."""
        request, image = asked.request, draft.image
        answer = DeleteTopicsAnswer(asked.ticket)
        self._new.append(answer)
        wanted = request.topics or [DeleteTopicState(name) for name in request.topic_names]
        for topic in wanted:
            try:
                name, topic_id = deletion_target(topic, image, draft.settings.topic_defaults)
            except KafkaError as error:
                refused = DeletedTopic(topic.name, topic.topic_id)
                answer.results.append(Result(refused, error.code, error.message))
                continue
            answer.results.append(Result(DeletedTopic(name, topic_id)))
            answer.waiting[name] = None
            if name not in draft.queued and not image.is_deleting(name):
                draft.queued[name] = None
                draft.add(QueueDeletion(name))

    def write(self, draft: Draft) -> None:
        """Remove topics without replicas on live brokers, and impossible deletion requests."""
        for name, deletion in draft.image.deletions.items():
            if deletion.done:
                draft.add(RemoveTopic(name, draft.image.topics.get(name)))
        forgotten, self._forgotten = self._forgotten, {}
        for name in forgotten:
            draft.add(ForgetDeletion(name))

    def settle(self, settlement: Settlement) -> None:
        """Command brokers to delete the topics that were queued since the last decision."""
        image = settlement.image
        for name, deletion in list(image.deletions.items()):
            if deletion.commanded:
                continue
            order = deletion_order(name, image)
            settlement.apply(DeletionCommanded(name, order.replicas))
            settlement.orders.append(order)
            if order.is_unreadable:
                settlement.notices.add(UnreadableTopicDeleted(name))

    # responses to clients

    def answers(self, removed: Sequence[TopicRemoved]) -> list[tuple[int, Any]]:
        """Return the answers to clients whose topics are all gone, or whose timeout is over."""
        for answer in self._waiting:
            for topic in removed:
                answer.waiting.pop(topic.name, None)
        for answer in self._new:
            if answer.ticket in self._given_up:
                del self._given_up[answer.ticket]
                answer.give_up()
        waiting, self._new = [*self._waiting, *self._new], []
        self._waiting = [answer for answer in waiting if answer.waiting]
        return [(answer.ticket, answer.message()) for answer in waiting if not answer.waiting]

    def give_up(self, ticket: int) -> Any | None:
        """Return the answer to a client whose timeout is over.

        Returns None if no decision has served the request yet. The decision that serves the request
        then also gives the answer.
        """
        for answer in self._waiting:
            if answer.ticket == ticket:
                self._waiting.remove(answer)
                answer.give_up()
                return answer.message()
        self._given_up[ticket] = None
        return None

    def copy(self) -> Deletions:
        """Return an independent copy."""
        other = Deletions()
        other._waiting = [answer.copy() for answer in self._waiting]
        other._new = [answer.copy() for answer in self._new]
        other._given_up = dict(self._given_up)
        return other


def has_work(image: Image) -> bool:
    """Return whether the next decision can take a step in the deletion of some topic."""
    return any(deletion.done or not deletion.commanded for deletion in image.deletions.values())


def deletion_order(name: str, image: Image) -> DeleteTopicReplicas:
    """Return the instruction to command brokers to delete a topic that is queued for deletion."""
    topic, is_unreadable = image.topics.get(name), name in image.unreadable
    if topic is None:
        return DeleteTopicReplicas(name, (), {}, is_unreadable)
    return DeleteTopicReplicas(name, topic.partitions, _live_replicas(topic, image), is_unreadable)


def _live_replicas(topic: Topic, image: Image) -> dict[int, tuple[TopicPartition, ...]]:
    """Return a topic's replicas on live brokers, including replicas that a reassignment removes."""
    held: dict[int, list[TopicPartition]] = {}
    for topic_partition in topic.partitions:
        for replica in topic.assignments[topic_partition.partition]:
            if replica in image.brokers:
                held.setdefault(replica, []).append(topic_partition)
    return {broker_id: tuple(partitions) for broker_id, partitions in held.items()}


def deletion_target(
    wanted: DeleteTopicState, image: Image, defaults: TopicDefaults
) -> tuple[str, TopicId]:
    """Return name and id of the topic to delete. Raises KafkaError for an undeletable topic."""
    if not defaults.deletion_enabled:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if wanted.name is None:
        name = image.topic_name(wanted.topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        _check_deletable(name)
        return name, wanted.topic_id
    if wanted.topic_id != ZERO_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is given by name or by id, not both")
    _check_deletable(wanted.name)
    topic = image.topics.get(wanted.name)
    if topic is not None:
        return topic.name, topic.topic_id
    if wanted.name in image.unreadable:
        return wanted.name, ZERO_TOPIC_ID
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name!r}")


def _check_deletable(name: str) -> None:
    if is_internal_topic(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"internal topic {name!r} cannot be deleted: brokers keep their own records in it",
        )
