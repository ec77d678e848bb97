"""Metrics of the reassignments that concern this broker's replicas (R16, KIP-352).

As in Kafka, one metric counts partitions that this broker leads while replicas are added or
removed. A second metric counts the bytes that this broker sent to added replicas. A third metric
counts the bytes that added replicas on this broker fetched. The controller's LeaderAndIsr commands
show which partitions are being reassigned. Without reassignments, the counting of a fetch costs
only a look-up in an empty dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.broker.replicas.metrics import (
    REASSIGNING_PARTITIONS,
    REASSIGNMENT_BYTES_IN,
    REASSIGNMENT_BYTES_OUT,
    REPLICATION_BYTES_IN,
)
from tidelog.broker.services import Services
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState


class ReassignmentMeters:
    """The bytes that reassignments copy from and to this broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        #: Partitions under reassignment that this broker leads, each with the added replicas.
        self._led: dict[TopicPartition, tuple[int, ...]] = {}
        #: Partitions whose replica on this broker is being added by a reassignment.
        self._copied: dict[TopicPartition, None] = {}
        #: The sample that counts all fetched bytes; looked up once, because it is used for every
        #: fetched partition.
        self._bytes_in = services.metrics.sample(REPLICATION_BYTES_IN, "")

    def role_taken(
        self, topic_partition: TopicPartition, state: LeaderAndIsrPartitionState
    ) -> None:
        """Note whether the partition of a new role is being reassigned."""
        broker_id = self._services.broker_id
        adding = tuple(state.adding_replicas)
        is_reassigned = bool(adding or state.removing_replicas)
        self._led.pop(topic_partition, None)
        self._copied.pop(topic_partition, None)
        if is_reassigned and state.leader == broker_id:
            self._led[topic_partition] = adding
        elif broker_id in adding:
            self._copied[topic_partition] = None
        self._show()

    def role_ended(self, topic_partition: TopicPartition) -> None:
        """Forget a partition whose role on this broker has ended."""
        self._led.pop(topic_partition, None)
        self._copied.pop(topic_partition, None)
        self._show()

    def sent(self, follower: int, sizes: Iterable[tuple[TopicPartition | None, int]]) -> None:
        """Count a response's bytes for added replicas; `follower` is negative for a consumer.

        `sizes` yields the response's partitions with their bytes, and is used only if needed.
        """
        if follower < 0 or not self._led:
            return
        total = sum(
            size
            for topic_partition, size in sizes
            if topic_partition is not None and follower in self._led.get(topic_partition, ())
        )
        if total:
            self._services.metrics.add(REASSIGNMENT_BYTES_OUT, total)

    def received(self, topic_partition: TopicPartition, count_bytes: int) -> None:
        """Count fetched bytes, also in the reassignment metric if the replica is being added."""
        self._bytes_in.value += count_bytes
        if topic_partition in self._copied:
            self._services.metrics.add(REASSIGNMENT_BYTES_IN, count_bytes)

    def _show(self) -> None:
        metrics = self._services.metrics
        if self._led or metrics.value(REASSIGNING_PARTITIONS):
            metrics.put(REASSIGNING_PARTITIONS, len(self._led))
