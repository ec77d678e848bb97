"""The response that lists reassignments under way and queued (KIP-455, R8, R11, R12).

Kafka's clients see the reassignments under way. tidelog's tagged fields add the original replicas,
the throttle and the id of each reassignment. Further tagged fields list the queue, with the reason
why each entry waits, and show whether reassignments are frozen. Another field shows whether the
metadata store lost its latest writes (E8); `tidelog health` reads this field.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.controller import store_went_back
from tidelog.controller.answers import Answer, Precedence
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.reassignments.queueing import Slots, reason_to_wait
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.list_partition_reassignments import (
    NO_REQUEST,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    QueuedReassignment,
)


@dataclass(frozen=True, slots=True)
class ReassignmentsListAsked(Event):
    """A client's request for the list of reassignments under way (KIP-455)."""

    ticket: int
    request: ListPartitionReassignmentsRequest


def list_reassignments(asked: ReassignmentsListAsked, draft: Draft) -> None:
    """Answer a request for the list of reassignments under way (KIP-455)."""
    image, named = draft.image, asked.request.topics
    if named is None:
        wanted: Iterable[TopicPartition] = sorted(image.moving)
    else:
        wanted = dict.fromkeys(
            TopicPartition(topic.name, number)
            for topic in named
            for number in topic.partition_indexes
        )
    found: dict[str, OngoingTopicReassignment] = {}
    for topic_partition in wanted:
        move = image.move(topic_partition)
        if move is None or image.is_deleting(topic_partition.topic):
            continue
        name, request = topic_partition.topic, image.accepted.get(topic_partition)
        topic = found.setdefault(name, OngoingTopicReassignment(name, []))
        topic.partitions.append(
            OngoingPartitionReassignment(
                topic_partition.partition,
                image.assigned(topic_partition),
                tuple(replica for replica in move.adding if replica not in move.removing),
                move.removing,
                move.original,
                NO_REQUEST if request is None else request.request_id,
                move.throttle,
                image.paused.get(topic_partition, ""),
            )
        )
    response = ListPartitionReassignmentsResponse(
        topics=list(found.values()),
        knows_queue=True,
        frozen=image.is_frozen,
        queued=_queued(None if named is None else wanted, draft),
        went_back="" if image.went_back is None else store_went_back.text(image.went_back),
    )
    draft.answer(
        Answer[TopicPartition](
            asked.ticket, Precedence.REASSIGNMENTS_LISTED, lambda results: response
        )
    )


def _queued(wanted: Iterable[TopicPartition] | None, draft: Draft) -> list[QueuedReassignment]:
    """Return the queue entries for `wanted` (None: all), in order, and why each entry waits."""
    image = draft.image
    if image.queue is None:
        return []
    slots = Slots(image, draft.settings)
    asked = None if wanted is None else set(wanted)
    return [
        QueuedReassignment(
            entry.topic_partition.topic,
            entry.topic_partition.partition,
            entry.replicas,
            reason_to_wait(entry, image, slots),
        )
        for entry in image.queue.entries.values()
        if asked is None or entry.topic_partition in asked
    ]
