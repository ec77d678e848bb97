"""Reassignments of partitions to other brokers: start, queue, freeze, cancel, list (KIP-455).

The controller serves them. All requests may be repeated: a partition that moves already, or has
arrived, is no error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask, topics_of
from tidelog.client.steps import Operation
from tidelog.client.versions import error_code
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
#: Time for one try. A controller that hangs loses its session, and the next try goes to another
#: one; a list is read, and a change waits a second for the brokers that take it.
_LIST_MS: Final = 5_000
_ALTER_MS: Final = 10_000


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
    #: The transaction that accepted the request node of this very move; -1 without one (R12).
    request_id: int = NO_REQUEST
    #: The throttle that came with the move, in bytes a second; 0 without one (R4).
    throttle: int = 0
    #: Why the added replicas do not copy for the moment; empty where they do.
    paused: str = ""

    @property
    def target(self) -> tuple[int, ...]:
        """The target replicas, preferred leader first."""
        return tuple(each for each in self.replicas if each not in self.removing)


@dataclass(frozen=True, slots=True)
class MoveQueued:
    """A move that waits in the queue (R8); `reason` is empty where it is about to begin."""

    target: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of a cluster; controllers of Apache Kafka have neither a queue nor a freeze."""

    under_way: dict[TopicPartition, MoveUnderWay]
    #: In the order of the queue.
    queued: dict[TopicPartition, MoveQueued]
    #: No move begins (R11).
    is_frozen: bool
    #: The controller has a queue and a freeze.
    knows_queue: bool
    #: How the metadata store shows to be older than the logs; empty where it is not (E8).
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
        """Move each partition to these brokers, the first of which is to lead it.

        None cancels a move. A partition among `expected` is refused where it has other replicas by
        now (R18). `queued` moves begin one after the other, as the limits of the queue allow (R8).
        A `throttle` is in bytes a second for each broker that the moves copy from or to, and goes
        with them; 0 removes that of a move under way, None keeps it (R4).

        Returns when the moves have begun or are queued; errors of single partitions are in the
        result. Raises KafkaError where the whole request failed. Controllers of Apache Kafka pass
        over `expected`; a queue or a throttle is UNSUPPORTED_VERSION there, as it is where the
        brokers cannot forbid another number of replicas.
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
        """End moves to these targets, under way or queued; without targets those to any.

        What was listed may be over, and a newer move may be there: it goes on, and the result is
        NO_REASSIGNMENT_IN_PROGRESS. Raises KafkaError where the whole request failed. Controllers
        of Apache Kafka pass over the targets.
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
        """Let no move begin from now on, or end that (R11). Raises KafkaError.

        Moves under way go on, and can be cancelled. UNSUPPORTED_VERSION where the controller is one
        of Apache Kafka.
        """
        yield from self._check_knows_queue()
        what = "freezing reassignments" if is_frozen else "unfreezing reassignments"
        freeze = FREEZE if is_frozen else UNFREEZE
        return (yield from self._alter(what, AlterPartitionReassignmentsRequest(freeze=freeze)))

    def _check_knows_queue(self) -> Operation[None]:
        """Raise KafkaError where the controller would ignore a queue, a freeze or a throttle."""
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
        """Send a request with the timeout of each try; return the result of each partition."""

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
        """Return the moves under way, of these partitions or of all. Raises KafkaError."""
        found = yield from self.moves(partitions)
        return found.under_way

    def moves(self, partitions: Iterable[TopicPartition] | None = None) -> Operation[Moves]:
        """Return the moves under way and queued, of these partitions or of all. Raises KafkaError.

        A move that the controller takes from the queue is in one of both at any time.
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
