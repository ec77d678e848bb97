"""Refusals common to all requests that change the partitions of a topic (V7).

The controller reports and removes a stored request that it cannot carry out. The response to a
client's request gives the reason of the refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.writes import Write
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class RequestsUnreadable(Event):
    """Event: nodes that request the addition or removal of partitions cannot be parsed."""

    topic_partitions: Sequence[TopicPartition]
    is_removal: bool


@dataclass(frozen=True, slots=True)
class ForgetRequest(Write):
    """Remove a stored request to add or to remove a partition, once it is done or impossible."""

    topic_partition: TopicPartition
    #: Whether the request is in `/admin/partitions_remove`; otherwise it is in
    #: `/admin/partitions_add`.
    is_removal: bool


class RefusedRequests:
    """Stored requests that the decision under construction rejects."""

    __slots__ = ("_reasons",)

    def __init__(self) -> None:
        self._reasons: dict[tuple[TopicPartition, bool], str] = {}

    def unreadable(self, event: RequestsUnreadable) -> None:
        """Collect the stored requests whose nodes cannot be parsed, to reject them."""
        for topic_partition in event.topic_partitions:
            reason = "its node holds no valid request"
            self._reasons[topic_partition, event.is_removal] = reason

    def removals(self, reasons: Mapping[TopicPartition, str]) -> None:
        """Collect impossible requests to remove partitions, with the reasons."""
        for topic_partition, reason in reasons.items():
            self._reasons[topic_partition, True] = reason

    def write(self, draft: Draft) -> None:
        """Report and remove the rejected requests."""
        reasons, self._reasons = self._reasons, {}
        for (topic_partition, is_removal), reason in reasons.items():
            refuse(topic_partition, reason, draft, is_removal=is_removal)


def refuse(topic_partition: TopicPartition, reason: str, draft: Draft, *, is_removal: bool) -> None:
    """Report a stored request that cannot be carried out, and remove it."""
    verb = "remove" if is_removal else "add"
    draft.report(f"the request to {verb} partition {topic_partition} is dropped: {reason}")
    draft.add(ForgetRequest(topic_partition, is_removal))


def check_resizable(name: str, times: int, draft: Draft) -> None:
    """Raise KafkaError if this decision deletes the topic, or the request names the topic twice."""
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named {times} times")
    if name in draft.queued:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} is being deleted")


def check_readable(topic_partition: TopicPartition, image: Image) -> None:
    """Raise KafkaError for a partition that must stay unchanged: its state node is unreadable."""
    reason = image.unreadable_states.get(topic_partition)
    if reason is not None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"the state node of partition {topic_partition} cannot be read, it is left alone:"
            f" {reason}",
        )
