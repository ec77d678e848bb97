"""Reassignments of partitions to other brokers: start, cancel, list (KIP-455).

The controller serves them. All requests may be repeated: a partition that moves already, or has
arrived, is no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, expect
from tidelog.client.steps import Call, Operation, always
from tidelog.client.upkeep import by_topic
from tidelog.client.versions import error_code
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tidelog.wire.registry import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS

_ANSWER_MARGIN_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """The result for one partition of a request; `message` is the broker's reason."""

    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class MoveUnderWay:
    """A partition that is being moved; `replicas` are all at present, the target first."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    #: The replicas that a cancel returns to, in their order; empty where they are not known, as
    #: with a controller of Apache Kafka (R1).
    original: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The target replicas, preferred leader first."""
        return tuple(each for each in self.replicas if each not in self.removing)


class MoveAdmin:
    """Operations on the placement of partitions."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def reassign(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        allow_replication_factor_change: bool = True,
        expected: Mapping[TopicPartition, tuple[int, ...]] | None = None,
    ) -> Operation[dict[TopicPartition, MoveAsked]]:
        """Move each partition to these brokers, the first of which is to lead it.

        None cancels a move. A partition among `expected` is refused where it has other replicas by
        now (R18); controllers of Apache Kafka do not look. Returns when the moves have begun;
        errors of single partitions are in the result. Raises KafkaError where the whole request
        failed; UNSUPPORTED_VERSION where the brokers cannot forbid another number of replicas.
        """
        topics = [
            ReassignableTopic(
                name,
                [
                    ReassignablePartition(
                        number,
                        targets[TopicPartition(name, number)],
                        (expected or {}).get(TopicPartition(name, number), ()),
                    )
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(targets).items()
        ]

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, MoveAsked]]:
            controller = yield from self._router.controller(patience)
            timeout_ms = max(1, patience.remaining_ms)
            message = AlterPartitionReassignmentsRequest(
                timeout_ms, allow_replication_factor_change, topics
            )
            answer = yield Call(
                controller.address,
                ALTER_PARTITION_REASSIGNMENTS,
                always(message),
                timeout_ms + _ANSWER_MARGIN_MS,
            )
            response = expect(answer, AlterPartitionReassignmentsResponse)
            if response.error_code:
                reason = response.error_message or f"at {controller.address}"
                raise KafkaError(error_code(response.error_code), reason)
            return {
                TopicPartition(topic.name, each.partition_index): MoveAsked(
                    error_code(each.error_code), each.error_message or ""
                )
                for topic in response.responses
                for each in topic.partitions
            }

        return self._router.repeat("reassigning partitions", attempt)

    def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> Operation[dict[TopicPartition, MoveUnderWay]]:
        """Return the moves under way, of these partitions or of all. Raises KafkaError."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name, numbers)
                for name, numbers in by_topic(partitions).items()
            ]

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, MoveUnderWay]]:
            controller = yield from self._router.controller(patience)
            timeout_ms = max(1, patience.remaining_ms)
            message = ListPartitionReassignmentsRequest(timeout_ms, topics)
            answer = yield Call(
                controller.address, LIST_PARTITION_REASSIGNMENTS, always(message), timeout_ms
            )
            response = expect(answer, ListPartitionReassignmentsResponse)
            if response.error_code:
                reason = response.error_message or f"at {controller.address}"
                raise KafkaError(error_code(response.error_code), reason)
            return {
                TopicPartition(topic.name, each.partition_index): MoveUnderWay(
                    tuple(each.replicas),
                    tuple(each.adding_replicas),
                    tuple(each.removing_replicas),
                    tuple(each.original_replicas),
                )
                for topic in response.topics
                for each in topic.partitions
            }

        return self._router.repeat("listing reassignments", attempt)
