"""The queue of the ISR changes that leaders propose and that are not durable yet (A8).

A new change of a partition replaces an unsent change of that partition. Subpackage `isr` has both
kinds of queues: `AlterPartitionManager` sends changes to the controller, `StateNodeWriter` writes
changes into the state nodes (A12). The role of the partition gets the outcome of each change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tidelog.core.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.replication.isr import IsrChange

#: ISR changes by partition, each with the replica of this broker that leads the partition.
IsrChanges = dict[TopicPartition, tuple["Partition", "IsrChange"]]


class IsrChangeQueue(ABC):
    """The interface of the queue of one broker's ISR changes that are not durable yet."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._queue: IsrChanges = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Queue a change, to be sent after the current event; replace an unsent change (A8)."""
        self._queue[partition.topic_partition] = (partition, change)
        self._soon()

    def withdraw(self, partition: Partition) -> None:
        """Drop the unsent change of a partition."""
        self._queue.pop(partition.topic_partition, None)

    @abstractmethod
    def retry(self, partition: Partition, change: IsrChange, after_ms: int = 0) -> None:
        """Send a change of unknown outcome again, after a pause of more than `after_ms`."""

    @abstractmethod
    def controller_changed(self) -> None:
        """Note that the broker's metadata may name another controller."""

    def close(self) -> None:
        """Send no more changes."""
        self._closed = True
        self._queue.clear()

    @abstractmethod
    def _soon(self) -> None:
        """Begin to send after the current event, when the event's changes are all queued (A10)."""
