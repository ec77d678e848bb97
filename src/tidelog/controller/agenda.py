"""Agenda: the partitions and reassignments that the next decision looks at.

Events of topics, partitions, elections and reassignments add entries; the next decision removes
them. The agenda is level-triggered: the decision about an entry depends on the image alone, so a
superfluous entry costs a check and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.controller.image import Image
from tidelog.core.types import TopicPartition


class Agenda:
    """The partitions and reassignments that the next decision checks, each kind in order of
    arrival.
    """

    __slots__ = ("departures", "has_requests", "partitions", "reassignments")

    def __init__(self) -> None:
        #: Partitions that may need another leader or ISR (V11).
        self.partitions: dict[TopicPartition, None] = {}
        #: Reassignments that may now be complete, or whose cancellation may now be complete (V50).
        self.reassignments: dict[TopicPartition, None] = {}
        #: Reassignments whose removed replicas may still have to be deleted (V52).
        self.departures: dict[TopicPartition, None] = {}
        #: Whether the next decision checks the nodes of the store that request reassignments or
        #: their cancellation.
        self.has_requests = False

    def __bool__(self) -> bool:
        """Return whether the agenda has an entry for the next decision."""
        return bool(self.partitions or self.reassignments or self.departures or self.has_requests)

    def look_at(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Add partitions whose leaders and ISRs the next decision checks."""
        self.partitions.update(dict.fromkeys(topic_partitions))

    def look_at_reassignments(
        self, topic_partitions: Iterable[TopicPartition], image: Image
    ) -> None:
        """Add the given partitions, if they are being reassigned."""
        moving = image.moving
        self.reassignments.update(
            dict.fromkeys(partition for partition in topic_partitions if partition in moving)
        )

    def look_at_departures(self, topic_partitions: Iterable[TopicPartition], image: Image) -> None:
        """Add partitions to `departures`, if they are being reassigned."""
        for topic_partition in topic_partitions:
            if topic_partition in image.moving:
                self.reassignments[topic_partition] = None
                self.departures[topic_partition] = None

    def look_at_requests(self, image: Image) -> None:
        """Add the nodes that request reassignments or their cancellation, if such a node exists."""
        self.has_requests = self.has_requests or image.has_requests

    def copy(self) -> Agenda:
        """Return an independent copy."""
        other = Agenda()
        other.partitions = dict(self.partitions)
        other.reassignments = dict(self.reassignments)
        other.departures = dict(self.departures)
        other.has_requests = self.has_requests
        return other

    def key(self) -> tuple[object, ...]:
        """Return a hashable form for the model checker; equal forms mean equal decisions."""
        return (
            tuple(self.partitions),
            tuple(self.reassignments),
            tuple(self.departures),
            self.has_requests,
        )
