"""Facts about a whole topic: it was found, it cannot be read, it is gone.

A topic whose node cannot be read is known by its name only. Its replicas and its metadata stay as
they are until the node is repaired (V35).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.controller.image import Change, Image
from tidelog.controller.records import Topic
from tidelog.core.types import PartitionState, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicFound(Change):
    """A topic exists, with the states that its partitions have so far."""

    topic: Topic
    states: Mapping[int, PartitionState]
    #: Partitions whose state nodes are malformed, with the reasons; they are left alone.
    unreadable: Mapping[int, str] = field(default_factory=dict)

    def apply(self, image: Image) -> None:
        """Add the topic, in place of any topic of its name."""
        image.add_topic(self.topic, self.states)
        for partition, reason in self.unreadable.items():
            image.unreadable_states[TopicPartition(self.topic.name, partition)] = reason


@dataclass(frozen=True, slots=True)
class TopicUnreadable(Change):
    """A topic's node is malformed; the topic is left alone."""

    name: str
    reason: str

    def apply(self, image: Image) -> None:
        """Keep the name only."""
        image.remove_topic(self.name)
        image.unreadable[self.name] = self.reason


@dataclass(frozen=True, slots=True)
class TopicGone(Change):
    """A topic no longer exists."""

    name: str

    def apply(self, image: Image) -> None:
        """Drop everything about the topic."""
        image.remove_topic(self.name)
        image.deletions.pop(self.name, None)
        image.unreadable.pop(self.name, None)
        image.removals.pop(self.name, None)
        image.forget_former(self.name)
