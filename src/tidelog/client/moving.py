"""Reassignments of partitions to other brokers: start, queue, freeze, cancel, list (KIP-455).

The controller serves all requests of this module. A request may be repeated: a partition that
already moves to its target, or already has its target replicas, causes no error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask, topics_of
from tidelog.client.steps import Operation
from tidelog.client.versions import error_code
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    FREEZE,
    KEEP_THROTTLE,
    UNFREEZE,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    EndedTarget,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.list_partition_reassignments import (
    NO_REQUEST,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tidelog.wire.registry import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS

_ANSWER_MARGIN_MS: Final = 2_000
#: Timeout in ms of one try to list reassignments. A hanging controller loses its session, so the
#: next try goes to a new controller.
_LIST_MS: Final = 5_000
#: Timeout in ms of one try to change reassignments. A change takes longer than a listing, because
#: the controller waits up to a second for brokers.
_ALTER_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """The result for one partition of a request; `message` is the broker's reason for an error."""

    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class MoveUnderWay:
    """A partition that is being moved; `replicas` has the target replicas, then the others."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    #: The replicas that a cancel restores, in their order; empty if unknown, as with a controller
    #: of Apache Kafka (R1).
    original: tuple[int, ...] = ()
    #: The id of the accepted request: the zxid that created its node in the metadata store; -1
    #: without such a node (R12).
    request_id: int = NO_REQUEST
    #: The throttle that was requested with the move, in bytes a second; 0 means none (R4).
    throttle: int = 0
    #: The reason for which the added replicas pause their copies; empty if they copy.
    paused: str = ""

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that the partition has after the move, preferred leader first."""
        return tuple(each for each in self.replicas if each not in self.removing)


@dataclass(frozen=True, slots=True)
class MoveQueued:
    """A move that waits in the queue (R8); `reason` is empty if the move is about to begin."""

    target: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of a cluster; controllers of Apache Kafka have neither a queue nor a freeze."""

    under_way: dict[TopicPartition, MoveUnderWay]
    #: Queued moves, in the order of the queue.
    queued: dict[TopicPartition, MoveQueued]
    #: Whether reassignments are frozen: no move begins (R11).
    is_frozen: bool
    #: Whether the controller supports a queue and a freeze.
    knows_queue: bool
    #: A sentence that says why the metadata store is older than the logs, as after a restore from a
    #: backup (E8); empty if the store is not older.
    went_back: str = ""


class MoveAdmin:
    """Operations on the placement of partitions."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def reassign(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        expected: Mapping[TopicPartition, tuple[int, ...]] | None = None,
        queued: bool = False,
        throttle: int | None = None,
    ) -> Operation[dict[TopicPartition, MoveAsked]]:
        """Move each partition to these brokers; the first broker becomes its preferred leader.

        None cancels a move. A partition in `expected` is refused if its replicas have changed
        (R18). With `queued`, the moves begin one after the other, as the limits of the queue allow
        (R8). A `throttle` is in bytes a second for each broker that the moves copy from or to, and
        ends with the moves. A throttle of 0 removes the throttle of a move under way; None keeps
        the throttle (R4).

        Returns when the moves have begun or are queued; errors of single partitions are in the
        result. Raises KafkaError if the whole request failed. With a controller of Apache Kafka,
        `expected` is ignored, and a queue or a throttle raises UNSUPPORTED_VERSION.
        """
        before = expected or {}
        topics = topics_of(
            targets,
            ReassignableTopic,
            lambda tp: ReassignablePartition(tp.partition, targets[tp], before.get(tp, ())),
        )
        if queued or throttle is not None:
            yield from self._check_knows_queue()
        rate = KEEP_THROTTLE if throttle is None else throttle
        request = AlterPartitionReassignmentsRequest(topics=topics, queued=queued, throttle=rate)
        return (yield from self._alter("reassigning partitions", request))

    def cancel(
        self, ended: Mapping[TopicPartition, Collection[tuple[int, ...]]]
    ) -> Operation[dict[TopicPartition, MoveAsked]]:
        """End the moves, under way or queued, that have one of the targets in `ended`. For a
        partition with an empty collection of targets, end any move.

        If a newer move has another target, that move continues, and the result is
        NO_REASSIGNMENT_IN_PROGRESS. Raises KafkaError if the whole request failed. A controller of
        Apache Kafka ignores the given targets and ends any move of the partition.
        """
        topics = topics_of(
            ended,
            ReassignableTopic,
            lambda tp: ReassignablePartition(
                tp.partition, None, ended_targets=list(map(EndedTarget, ended[tp]))
            ),
        )
        request = AlterPartitionReassignmentsRequest(topics=topics)
        return self._alter("cancelling reassignments", request)

    def freeze(self, is_frozen: bool) -> Operation[dict[TopicPartition, MoveAsked]]:
        """Set or end a freeze, during which no move begins (R11). Raises KafkaError.

        Moves under way continue during a freeze, and can be cancelled. A controller of Apache Kafka
        responds to a freeze with UNSUPPORTED_VERSION.
        """
        yield from self._check_knows_queue()
        what = "freezing reassignments" if is_frozen else "unfreezing reassignments"
        freeze = FREEZE if is_frozen else UNFREEZE
        return (yield from self._alter(what, AlterPartitionReassignmentsRequest(freeze=freeze)))

    def _check_knows_queue(self) -> Operation[None]:
        """Raise KafkaError if the controller would ignore a queue, a freeze or a throttle."""
        found = yield from self.moves(())
        if not found.knows_queue:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "the controller is a broker of Apache Kafka, which neither queues nor freezes"
                " reassignments, and takes no throttle along with them",
            )

    def _alter(
        self, what: str, request: AlterPartitionReassignmentsRequest
    ) -> Operation[dict[TopicPartition, MoveAsked]]:
        """Send a request with the timeout of one try; return the result of each partition."""

        def attempt(patience: Patience) -> Operation[dict[TopicPartition, MoveAsked]]:
            controller = yield from self._router.controller(patience)
            timeout_ms = max(1, min(_ALTER_MS, patience.remaining_ms))
            response = yield from ask(
                controller,
                ALTER_PARTITION_REASSIGNMENTS,
                replace(request, timeout_ms=timeout_ms),
                patience,
                AlterPartitionReassignmentsResponse,
                timeout_ms + _ANSWER_MARGIN_MS,
            )
            return {
                TopicPartition(topic.name, each.partition_index): MoveAsked(
                    error_code(each.error_code), each.error_message or ""
                )
                for topic in response.responses
                for each in topic.partitions
            }

        return self._router.repeat(what, attempt)

    def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> Operation[dict[TopicPartition, MoveUnderWay]]:
        """Return the moves under way, for these partitions or for all. Raises KafkaError."""
        found = yield from self.moves(partitions)
        return found.under_way

    def moves(self, partitions: Iterable[TopicPartition] | None = None) -> Operation[Moves]:
        """Return the moves under way and queued, for these partitions or for all. Raises
        KafkaError.

        A queued move that the controller is starting is listed either as queued or as under way.
        """
        topics = None
        if partitions is not None:
            topics = topics_of(partitions, ListPartitionReassignmentsTopics)

        def attempt(patience: Patience) -> Operation[Moves]:
            controller = yield from self._router.controller(patience)
            timeout_ms = max(1, min(_LIST_MS, patience.remaining_ms))
            message = ListPartitionReassignmentsRequest(timeout_ms, topics)
            response = yield from ask(
                controller,
                LIST_PARTITION_REASSIGNMENTS,
                message,
                patience,
                ListPartitionReassignmentsResponse,
                timeout_ms,
            )
            return _moves_of(response)

        return self._router.repeat("listing reassignments", attempt)


def _moves_of(response: ListPartitionReassignmentsResponse) -> Moves:
    return Moves(
        {
            TopicPartition(topic.name, each.partition_index): MoveUnderWay(
                tuple(each.replicas),
                tuple(each.adding_replicas),
                tuple(each.removing_replicas),
                tuple(each.original_replicas),
                each.request_id,
                each.throttle,
                each.paused,
            )
            for topic in response.topics
            for each in topic.partitions
        },
        {
            TopicPartition(each.topic, each.partition_index): MoveQueued(
                tuple(each.replicas), each.reason
            )
            for each in response.queued
        },
        response.frozen,
        response.knows_queue,
        response.went_back,
    )
