"""Metrics of the reassignments that concern this broker's replicas (R16, KIP-352).

As Kafka counts them: partitions that this broker leads while replicas are added or removed, bytes
sent to replicas that are added, and bytes fetched by replicas of this broker that are added. The
roles that the controller commands say which partitions those are. A broker without any pays for one
look at an empty dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.broker.replicas.metrics import (
    REASSIGNING_PARTITIONS,
    REASSIGNMENT_BYTES_IN,
    REASSIGNMENT_BYTES_OUT,
)
from tidelog.broker.services import Services
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState


class ReassignmentMeters:
    """What reassignments copy from and to this broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        #: Reassigned partitions that this broker leads, with the replicas that are added.
        self._led: dict[TopicPartition, tuple[int, ...]] = {}
        #: Partitions whose replica on this broker is added by a reassignment.
        self._copied: dict[TopicPartition, None] = {}

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
        """Forget a partition that has no role here any more."""
        self._led.pop(topic_partition, None)
        self._copied.pop(topic_partition, None)
        self._show()

    def sent(self, follower: int, sizes: Iterable[tuple[TopicPartition | None, int]]) -> None:
        """Count the bytes of a response for added replicas; `follower` is below 0 for a consumer.

        `sizes`: the partitions of the response with their bytes, made only if they are needed.
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
        """Count what this broker fetched, if the reassignment adds its replica."""
        if topic_partition in self._copied:
            self._services.metrics.add(REASSIGNMENT_BYTES_IN, count_bytes)

    def _show(self) -> None:
        metrics = self._services.metrics
        if self._led or metrics.value(REASSIGNING_PARTITIONS):
            metrics.put(REASSIGNING_PARTITIONS, len(self._led))
