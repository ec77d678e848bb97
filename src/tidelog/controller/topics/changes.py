"""Facts about a whole topic: the topic was found, cannot be read, or is gone.

If a topic's node cannot be read, the image has only its name. The controller leaves the replicas
and the metadata of an unreadable topic unchanged until its node is repaired (V35).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tidelog.controller.image import Change, Image
from tidelog.controller.records import Topic
from tidelog.core.dataclass import dataclass
from tidelog.core.types import PartitionState, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicFound(Change):
    """Change: a topic was found in the store, with the partition states that were read."""

    topic: Topic
    states: Mapping[int, PartitionState]
    #: Partitions whose state nodes are malformed, with the reasons; these partitions stay
    #: unchanged.
    unreadable: Mapping[int, str] = field(default_factory=dict)

    def apply(self, image: Image) -> None:
        """Add the topic, in place of any topic of the same name."""
        image.add_topic(self.topic, self.states)
        for partition, reason in self.unreadable.items():
            image.unreadable_states[TopicPartition(self.topic.name, partition)] = reason


@dataclass(frozen=True, slots=True)
class TopicUnreadable(Change):
    """A topic's node is malformed, so the controller leaves the topic unchanged."""

    name: str
    reason: str

    def apply(self, image: Image) -> None:
        """Drop all knowledge of the topic but its name."""
        image.remove_topic(self.name)
        image.unreadable[self.name] = self.reason


@dataclass(frozen=True, slots=True)
class TopicGone(Change):
    """Change: a topic no longer exists."""

    name: str

    def apply(self, image: Image) -> None:
        """Drop all knowledge of the topic."""
        image.remove_topic(self.name)
        image.deletions.pop(self.name, None)
        image.unreadable.pop(self.name, None)
        image.removals.pop(self.name, None)
        image.forget_former(self.name)
