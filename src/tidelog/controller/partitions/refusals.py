"""Requests to change the partitions of a topic: what is refused, whatever is asked for (V7).

A request that was left in the store and cannot be done is reported and removed. A request of a
client is answered with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.writes import Write
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class RequestsUnreadable(Event):
    """Requests to add or to remove partitions that say nothing that can be done."""

    topic_partitions: Sequence[TopicPartition]
    is_removal: bool


@dataclass(frozen=True, slots=True)
class ForgetRequest(Write):
    """Remove the request to add or to remove a partition: it is done, or cannot be."""

    topic_partition: TopicPartition
    #: `/admin/partitions_remove`, else `/admin/partitions_add`.
    is_removal: bool


class RefusedRequests:
    """Requests that readings found and that the decision which is made refuses."""

    __slots__ = ("_reasons",)

    def __init__(self) -> None:
        self._reasons: dict[tuple[TopicPartition, bool], str] = {}

    def unreadable(self, event: RequestsUnreadable) -> None:
        """Take over requests that say nothing that can be done."""
        for topic_partition in event.topic_partitions:
            reason = "its node says nothing that can be done"
            self._reasons[topic_partition, event.is_removal] = reason

    def removals(self, reasons: Mapping[TopicPartition, str]) -> None:
        """Take over requests to remove partitions that cannot be done, and why."""
        for topic_partition, reason in reasons.items():
            self._reasons[topic_partition, True] = reason

    def write(self, draft: Draft) -> None:
        """Refuse them."""
        reasons, self._reasons = self._reasons, {}
        for (topic_partition, is_removal), reason in reasons.items():
            refuse(topic_partition, reason, draft, is_removal=is_removal)


def refuse(topic_partition: TopicPartition, reason: str, draft: Draft, *, is_removal: bool) -> None:
    """Report a request that cannot be done, and remove it."""
    verb = "remove" if is_removal else "add"
    draft.report(f"the request to {verb} partition {topic_partition} is dropped: {reason}")
    draft.add(ForgetRequest(topic_partition, is_removal))


def check_resizable(name: str, times: int, draft: Draft) -> None:
    """Raise KafkaError where this decision deletes the topic, or the request names it twice."""
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named {times} times")
    if name in draft.queued:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} is being deleted")


def check_readable(topic_partition: TopicPartition, image: Image) -> None:
    """Raise KafkaError for a partition that is left alone as its state node cannot be read."""
    reason = image.unreadable_states.get(topic_partition)
    if reason is not None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"the state node of partition {topic_partition} cannot be read, it is left alone:"
            f" {reason}",
        )
