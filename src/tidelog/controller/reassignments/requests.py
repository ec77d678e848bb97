"""Reassignment requests of clients: to move, cancel, queue or freeze (KIP-455, R8, R11).

A client's request for a partition replaces older stored requests for that partition. The controller
removes the stored requests first, because otherwise the next controller would carry them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidelog.controller import records
from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.reassignments import targets, transitions
from tidelog.controller.reassignments.progress import ReassignmentsDraft
from tidelog.controller.reassignments.stored import Newer, Route, StoredRequests, size_of
from tidelog.controller.reassignments.stored_nodes import KeepQueue, SetFreeze
from tidelog.controller.writes import Conflict
from tidelog.core import limits
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    FREEZE,
    KEEP_THROTTLE,
    NO_FREEZE,
    UNFREEZE,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@dataclass(frozen=True, slots=True)
class ReassignmentsAsked(Event):
    """A client's request to reassign partitions, or to cancel their reassignments (KIP-455)."""

    ticket: int
    request: AlterPartitionReassignmentsRequest


class ReassignmentRequests:
    """The reassignment requests of clients that one decision serves."""

    def __init__(self, reassignments: ReassignmentsDraft, stored: StoredRequests) -> None:
        self._reassignments = reassignments
        self._stored = stored
        self._draft: Draft = reassignments.draft
        self._image = self._draft.image
        #: Whether a request of this decision creates the queue.
        self._makes_queue = False

    def serve(self, asked: ReassignmentsAsked) -> bool:
        """Serve a client's request; each partition is accepted or rejected by itself.

        Returns False if this decision has already changed one of the partitions or a topic's node;
        the request is then decided later.
        """
        if asked.request.freeze != NO_FREEZE:
            self._set_freeze(asked)
            return True
        wanted = [
            (TopicPartition(topic.name, partition.partition_index), partition)
            for topic in asked.request.topics
            for partition in topic.partitions
        ]
        if asked.request.queued:
            self._enqueue(asked, wanted)
            return True
        if not all(self._reassignments.is_free(topic_partition) for topic_partition, _ in wanted):
            return False
        self._reassign(asked, wanted)
        return True

    def _reassign(
        self,
        asked: ReassignmentsAsked,
        wanted: Sequence[tuple[TopicPartition, ReassignablePartition]],
    ) -> None:
        may_change_factor = asked.request.allow_replication_factor_change
        throttle = _throttle(asked.request)
        answer = self._answer(asked)
        accepted: list[tuple[Result[TopicPartition], tuple[int, ...] | None]] = []
        newer: dict[TopicPartition, Newer] = {}
        for result, requested in _each_once(answer, wanted):
            try:
                target = self._target(result.subject, requested, may_change_factor)
            except KafkaError as error:
                result.refuse(error)
            else:
                accepted.append((result, target))
                ended = _ended(requested)
                newer[result.subject] = Newer(target or (), throttle, ended)
        overruled = self._stored.overrule(newer)
        for result, target in accepted:
            if target is None:
                result.write = overruled
                continue
            try:
                result.write = self._reassignments.begin(result.subject, target, throttle)
            except KafkaError as error:
                result.refuse(error)

    def _target(
        self,
        topic_partition: TopicPartition,
        requested: ReassignablePartition,
        may_change_factor: bool,
    ) -> tuple[int, ...] | None:
        """Return the requested target; None if the request only removes stored requests."""
        image = self._image
        targets.topic_of(topic_partition, image)
        expected, wanted = tuple(requested.expected_replicas), tuple(requested.replicas or ())
        if not targets.is_repeated(topic_partition, expected, wanted, image):
            targets.check_expected(topic_partition, expected, image)
        move = image.move(topic_partition)
        if requested.replicas is None:
            return self._cancelled(topic_partition, _ended(requested))
        targets.check_not_cancelled(topic_partition, image)
        target = tuple(requested.replicas)
        if move is None or target not in (
            move.original,
            records.target_of(image.assigned(topic_partition), move),
        ):
            targets.check_not_frozen(topic_partition, image)
        targets.check_target(topic_partition, target, image, may_change_factor)
        minimum = self._draft.minimum(topic_partition)
        targets.check_minimum(topic_partition, target, minimum, image)
        return target

    def _cancelled(
        self, topic_partition: TopicPartition, ended: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...] | None:
        """Return the target of a cancellation; None if it only removes stored requests.

        The client cancels reassignments to the `ended` targets, or any reassignment if `ended` is
        empty. Reassignments to other targets than the `ended` targets continue.
        """
        image, waiting = self._image, self._stored.waiting(topic_partition)
        move, known = image.move(topic_partition), waiting
        if ended:
            known = [target for target in waiting if target in ended]
            if move is not None:
                assigned = image.assigned(topic_partition)
                target = records.target_of(assigned, move)
                if target not in ended and not transitions.goes_back(assigned, move):
                    _check_known(topic_partition, known, target)
                    return None
            elif waiting:
                _check_known(topic_partition, known, waiting[0])
                return None
        try:
            return targets.original_of(topic_partition, image)
        except KafkaError:
            if not known:
                raise
            return None

    # requests for the queue, and to freeze reassignments

    def _enqueue(
        self,
        asked: ReassignmentsAsked,
        wanted: Sequence[tuple[TopicPartition, ReassignablePartition]],
    ) -> None:
        """Create the queue from a request's partitions; rejected while a queue exists (R8)."""
        image = self._image
        may_change_factor = asked.request.allow_replication_factor_change
        answer = self._answer(asked)
        entries: dict[TopicPartition, ReassignmentEntry] = {}
        size_bytes = 0
        accepted: list[Result[TopicPartition]] = []
        for result, requested in _each_once(answer, wanted):
            topic_partition = result.subject
            throttle = _throttle(asked.request) or 0
            if self._is_queued(topic_partition, requested, throttle):
                continue
            try:
                targets.topic_of(topic_partition, image)
                targets.check_expected(topic_partition, tuple(requested.expected_replicas), image)
                targets.check_not_cancelled(topic_partition, image)
                target = self._check_queued(topic_partition, requested, may_change_factor)
                entry = ReassignmentEntry(topic_partition, target, throttle=throttle)
                size_bytes += size_of({topic_partition: entry})
                _check_room(len(entries), size_bytes, topic_partition)
            except KafkaError as error:
                result.refuse(error)
            else:
                entries[topic_partition] = entry
                accepted.append(result)
        if accepted:
            index = self._draft.add(KeepQueue(entries, -1))
            self._makes_queue = True
            for result in accepted:
                result.write = index

    def _is_queued(
        self, topic_partition: TopicPartition, requested: ReassignablePartition, throttle: int
    ) -> bool:
        """Return whether the queue already has this entry; clients repeat requests on timeout."""
        queue = self._image.queue
        if queue is None or requested.replicas is None:
            return False
        entry = queue.entries.get(topic_partition)
        target = tuple(requested.replicas)
        return entry is not None and (entry.replicas, entry.throttle) == (target, throttle)

    def _check_queued(
        self,
        topic_partition: TopicPartition,
        requested: ReassignablePartition,
        may_change_factor: bool,
    ) -> tuple[int, ...]:
        if requested.replicas is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a cancel is not queued: ask to cancel {topic_partition} at once",
            )
        queue = self._image.queue
        if queue is not None or self._makes_queue:
            count = len(queue.entries) if queue is not None else "new"
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"{Route.QUEUE.value} has {count} entries: ask again when it is gone, or cancel"
                " them first",
            )
        target = tuple(requested.replicas)
        targets.check_replicas(topic_partition, target, self._image, may_change_factor)
        return target

    def _set_freeze(self, asked: ReassignmentsAsked) -> None:
        freeze, error, reason = asked.request.freeze, ErrorCode.NONE, None
        if asked.request.topics or freeze not in (FREEZE, UNFREEZE):
            error = ErrorCode.INVALID_REQUEST
            reason = f"a request to freeze names no partitions, and freeze is 1 or 2, not {freeze}"
        else:
            self._draft.add(SetFreeze(freeze == FREEZE))
        response = AlterPartitionReassignmentsResponse(
            error_code=error, error_message=reason, responses=[]
        )
        self._draft.answer(
            Answer[TopicPartition](asked.ticket, Precedence.REASSIGNMENTS, lambda results: response)
        )

    def _answer(self, asked: ReassignmentsAsked) -> Answer[TopicPartition]:
        may_change_factor = asked.request.allow_replication_factor_change
        answer = Answer[TopicPartition](
            asked.ticket,
            Precedence.REASSIGNMENTS,
            partial(_response, may_change_factor),
            _on_conflict,
        )
        self._draft.answer(answer)
        return answer


def _throttle(request: AlterPartitionReassignmentsRequest) -> int | None:
    """Return the throttle that a request sets; None to keep the throttles of reassignments."""
    return None if request.throttle <= KEEP_THROTTLE else request.throttle


def _ended(requested: ReassignablePartition) -> list[tuple[int, ...]]:
    """Return the targets of the reassignments that a cancellation ends; empty means any target."""
    return [tuple(each.replicas) for each in requested.ended_targets]


def _check_known(
    topic_partition: TopicPartition, known: Sequence[tuple[int, ...]], newer: tuple[int, ...]
) -> None:
    """Raise KafkaError if a newer reassignment replaced the one that a cancellation names."""
    if not known:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            f"the move of {topic_partition} that was to be cancelled is over, and another one, to"
            f" {list(newer)}, is there now: list the moves again",
        )


def _each_once(
    answer: Answer[TopicPartition],
    wanted: Sequence[tuple[TopicPartition, ReassignablePartition]],
) -> Sequence[tuple[Result[TopicPartition], ReassignablePartition]]:
    """Return a result for each partition; a partition that the request names again is rejected."""
    named: dict[TopicPartition, None] = {}
    results = []
    for topic_partition, requested in wanted:
        result = Result(topic_partition)
        answer.results.append(result)
        if topic_partition in named:
            result.refuse(
                KafkaError(ErrorCode.INVALID_REQUEST, f"{topic_partition} is named more than once")
            )
        else:
            results.append((result, requested))
        named[topic_partition] = None
    return results


def _check_room(count: int, size_bytes: int, topic_partition: TopicPartition) -> None:
    """Raise KafkaError if the queue's node has no room for another entry (R1)."""
    if size_bytes > limits.MAX_NODE_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the queue's node has room for {count} partitions of these: queue {topic_partition}"
            " when they are done",
        )


def _on_conflict(
    result: Result[TopicPartition], conflict: Conflict
) -> tuple[ErrorCode, str | None]:
    return (
        ErrorCode.INVALID_UPDATE_VERSION,
        f"the nodes of {result.subject} were changed concurrently: describe it and retry",
    )


def _response(
    may_change_factor: bool, results: Sequence[Result[TopicPartition]]
) -> AlterPartitionReassignmentsResponse:
    topics: dict[str, ReassignableTopicResponse] = {}
    for result in results:
        name, partition = result.subject
        topic = topics.setdefault(name, ReassignableTopicResponse(name, []))
        topic.partitions.append(
            ReassignablePartitionResponse(partition, result.error, result.message)
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor, responses=list(topics.values())
    )
