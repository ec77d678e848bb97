"""Reassignments on request: of clients, and by `/admin/reassign_partitions` (R1, R10, KIP-455).

A client's request overrides an entry of the node. The controller removes that entry first, because
the next controller would otherwise return to it. An entry stays until its reassignment is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.controller import records
from tidelog.controller.agenda import Agenda
from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.reassignments import targets
from tidelog.controller.reassignments.progress import ReassignmentsDraft
from tidelog.controller.records import RequestedReassignments
from tidelog.controller.settlement import Settlement
from tidelog.controller.writes import Conflict, Outcome, Write
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@dataclass(frozen=True, slots=True)
class ReassignmentsRead(Event):
    """The content of `/admin/reassign_partitions`, None where the node does not exist (R1)."""

    found: RequestedReassignments | None


@dataclass(frozen=True, slots=True)
class ReassignmentsAsked(Event):
    """A client's request to reassign partitions, or to cancel their reassignments (KIP-455)."""

    ticket: int
    request: AlterPartitionReassignmentsRequest


@dataclass(frozen=True, slots=True)
class ReassignmentsListAsked(Event):
    """A client's request for the list of reassignments under way (KIP-455)."""

    ticket: int
    request: ListPartitionReassignmentsRequest


@dataclass(frozen=True, slots=True)
class ReassignmentRefused:
    """An entry of `/admin/reassign_partitions` that cannot be carried out."""

    topic_partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class ReassignmentsFound(Change):
    """New content of `/admin/reassign_partitions`, None where the node does not exist."""

    found: RequestedReassignments | None

    def apply(self, image: Image) -> None:
        """Take over the content."""
        image.reassignments = self.found


@dataclass(frozen=True, slots=True)
class KeepReassignments(Write):
    """Keep these entries in `/admin/reassign_partitions` (R1).

    The node is removed when none is left.
    """

    entries: Mapping[TopicPartition, ReassignmentEntry]
    expected_version: int

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Take over the remaining entries.

        A node that another writer has changed is read again when its watch fires.
        """
        if isinstance(outcome, Conflict):
            return
        left = RequestedReassignments(self.expected_version + 1, self.entries)
        settlement.apply(ReassignmentsFound(left if self.entries else None))


def requests_read(event: ReassignmentsRead, image: Image, agenda: Agenda) -> None:
    """Take over the content of the administrator's node."""
    image.apply(ReassignmentsFound(event.found))
    agenda.look_at_requests(image)


class ReassignmentRequests:
    """The reassignment requests of one decision."""

    def __init__(self, reassignments: ReassignmentsDraft) -> None:
        self._reassignments = reassignments
        self._draft: Draft = reassignments.draft
        self._image = self._draft.image
        #: Index of the write to `/admin/reassign_partitions`.
        self._kept: int | None = None

    # clients

    def reassign(self, asked: ReassignmentsAsked) -> bool:
        """Begin the reassignments of a client's request, each partition by itself.

        Returns False where this decision has already changed one of the partitions, or a topic's
        node; the request is then decided later.
        """
        wanted = [
            (TopicPartition(topic.name, partition.partition_index), partition)
            for topic in asked.request.topics
            for partition in topic.partitions
        ]
        if not all(self._reassignments.is_free(topic_partition) for topic_partition, _ in wanted):
            return False
        may_change_factor = asked.request.allow_replication_factor_change
        answer = Answer[TopicPartition](
            asked.ticket,
            Precedence.REASSIGNMENTS,
            partial(_response, may_change_factor),
            _on_conflict,
        )
        self._draft.answer(answer)
        accepted: list[tuple[Result[TopicPartition], tuple[int, ...]]] = []
        named: dict[TopicPartition, None] = {}
        for topic_partition, requested in wanted:
            result = Result(topic_partition)
            answer.results.append(result)
            try:
                if topic_partition in named:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, f"{topic_partition} is named more than once"
                    )
                named[topic_partition] = None
                target = self._target(topic_partition, requested, may_change_factor)
            except KafkaError as error:
                result.refuse(error)
            else:
                accepted.append((result, target))
        self._overrule({result.subject: target for result, target in accepted})
        for result, target in accepted:
            try:
                result.write = self._reassignments.begin(result.subject, target)
            except KafkaError as error:
                result.refuse(error)
        return True

    def _target(
        self,
        topic_partition: TopicPartition,
        requested: ReassignablePartition,
        may_change_factor: bool,
    ) -> tuple[int, ...]:
        targets.topic_of(topic_partition, self._image)
        targets.check_expected(topic_partition, tuple(requested.expected_replicas), self._image)
        if requested.replicas is None:
            return targets.original_of(topic_partition, self._image)
        targets.check_not_cancelled(topic_partition, self._image)
        target = tuple(requested.replicas)
        targets.check_target(topic_partition, target, self._image, may_change_factor)
        return target

    # the administrator's node

    def look_at_node(self) -> None:
        """Begin the reassignments of `/admin/reassign_partitions` (R1).

        Entries that are done or cannot be carried out are removed. The others get their original
        replicas noted.
        """
        found = self._image.reassignments
        if found is None:
            return
        kept: dict[TopicPartition, ReassignmentEntry] = {}
        for topic_partition, entry in found.entries.items():
            try:
                left = self._look_at(entry)
            except KafkaError as error:
                self._draft.notice(ReassignmentRefused(topic_partition, error.message))
                continue
            if left is not None:
                kept[topic_partition] = left
        if kept != found.entries or not kept:
            self._keep(kept)

    def _look_at(self, entry: ReassignmentEntry) -> ReassignmentEntry | None:
        """Return what is left of an entry, None for an entry that is done; raises KafkaError."""
        topic_partition, target, _ = entry
        image = self._image
        if topic_partition.topic in image.unreadable or topic_partition in image.unreadable_states:
            return entry
        targets.topic_of(topic_partition, image)
        if not self._reassignments.is_free(topic_partition):
            return entry
        move = image.move(topic_partition)
        assigned = image.assigned(topic_partition)
        if move is None and assigned == target:
            return None
        if not image.is_completing(topic_partition):
            targets.check_not_cancelled(topic_partition, image)
        if move is not None and (
            records.target_of(assigned, move) == target or image.is_completing(topic_partition)
        ):
            return entry._replace(original=move.original)
        targets.check_target(topic_partition, target, image)
        self._reassignments.begin(topic_partition, target)
        begun = self._reassignments.begun(topic_partition)
        return None if begun is None else entry._replace(original=begun.original)

    def _overrule(self, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Remove entries of the administrator's node that a newer request overrides.

        They are removed before that request begins: the next controller would otherwise return to
        them.
        """
        found = self._image.reassignments
        if found is None:
            return
        kept = {
            topic_partition: entry
            for topic_partition, entry in found.entries.items()
            if wanted.get(topic_partition, entry.replicas) == entry.replicas
        }
        if len(kept) < len(found.entries):
            self._keep(kept)

    def _keep(self, entries: Mapping[TopicPartition, ReassignmentEntry]) -> None:
        found = self._image.reassignments
        assert found is not None
        write = KeepReassignments(dict(entries), found.version)
        if self._kept is None:
            self._kept = self._draft.add(write)
            return
        earlier = self._draft.decision.writes[self._kept]
        assert isinstance(earlier, KeepReassignments)
        left = {
            partition: entry for partition, entry in entries.items() if partition in earlier.entries
        }
        self._draft.decision.writes[self._kept] = KeepReassignments(left, found.version)


def _on_conflict(
    result: Result[TopicPartition], conflict: Conflict
) -> tuple[ErrorCode, str | None]:
    return (
        ErrorCode.INVALID_UPDATE_VERSION,
        f"topic {result.subject.topic!r} was changed concurrently: describe it and retry",
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


def list_reassignments(asked: ReassignmentsListAsked, draft: Draft) -> None:
    """Answer a request for the list of reassignments under way (KIP-455)."""
    image, named = draft.image, asked.request.topics
    if named is None:
        wanted: Iterable[TopicPartition] = sorted(image.moving)
    else:
        wanted = dict.fromkeys(
            TopicPartition(topic.name, number)
            for topic in named
            for number in topic.partition_indexes
        )
    found: dict[str, OngoingTopicReassignment] = {}
    for topic_partition in wanted:
        move = image.move(topic_partition)
        if move is None or image.is_deleting(topic_partition.topic):
            continue
        name = topic_partition.topic
        topic = found.setdefault(name, OngoingTopicReassignment(name, []))
        topic.partitions.append(
            OngoingPartitionReassignment(
                topic_partition.partition,
                image.assigned(topic_partition),
                tuple(replica for replica in move.adding if replica not in move.removing),
                move.removing,
                move.original,
            )
        )
    response = ListPartitionReassignmentsResponse(topics=list(found.values()))
    draft.answer(
        Answer[TopicPartition](
            asked.ticket, Precedence.REASSIGNMENTS_LISTED, lambda results: response
        )
    )
