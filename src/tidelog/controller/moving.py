"""Reassignments in a decision: begun on request, brought forward, ended (V50, V52, R1).

A move begins with the topic's node, which names all replicas from then on, and with the state under
the next leader epoch, by which they are told. It ends with the state that has the target alone, the
replicas that are to go stopped and deleted, and the node again, last. Each step follows from what
is published, so that the next controller takes up where this one was lost. Works on a draft, which
has at most one write for a partition and, here, one for a topic's node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidelog.controller import moves, reassignment, topics
from tidelog.controller.changes import Topic
from tidelog.controller.decision import (
    KeepReassignments,
    ReassignmentResult,
    ReassignmentsAnswer,
    WriteAssignments,
    WritePartitionState,
)
from tidelog.controller.draft import Draft
from tidelog.controller.events import ReassignmentsAsked, ReassignmentsListAsked
from tidelog.controller.image import Image
from tidelog.controller.moves import Move
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import ReassignablePartition
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@dataclass(slots=True)
class _Node:
    """A topic's node as it will be."""

    topic: Topic
    write: int
    assignments: dict[int, tuple[int, ...]]
    moves: dict[int, Move]
    begun: dict[int, None]
    #: Lists of replicas in it, and the ids in them.
    lists: int
    ids: int

    def topic_written(self) -> Topic:
        return replace(
            self.topic,
            assignments=dict(self.assignments),
            moves=dict(self.moves),
            version=self.topic.version + 1,
        )


class MovingDraft:
    """The part of a decision that is about reassignments."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._image: Image = draft.image
        self._nodes: dict[str, _Node] = {}
        #: Index of the write to `/admin/reassign_partitions`.
        self._kept: int | None = None

    def close(self) -> None:
        """All is decided: fill in what the topics' nodes will hold."""
        writes = self._draft.decision.writes
        for node in self._nodes.values():
            writes[node.write] = WriteAssignments(node.topic_written(), tuple(node.begun))

    # requests

    def reassign(self, asked: ReassignmentsAsked) -> bool:
        """Begin what a client asks for, each partition by itself. False where this decision has
        changed one of them, or the node of a topic, already: decide later."""
        wanted = [
            (TopicPartition(topic.name, one.partition_index), one)
            for topic in asked.request.topics
            for one in topic.partitions
        ]
        if any(not self._is_free(topic_partition) for topic_partition, _ in wanted):
            return False
        may_change_factor = asked.request.allow_replication_factor_change
        answer = ReassignmentsAnswer(asked.ticket, may_change_factor)
        self._draft.decision.reassignment_answers.append(answer)
        targets: list[tuple[ReassignmentResult, tuple[int, ...]]] = []
        named: dict[TopicPartition, None] = {}
        for topic_partition, one in wanted:
            result = ReassignmentResult(topic_partition)
            answer.results.append(result)
            try:
                if topic_partition in named:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, f"{topic_partition} is named more than once"
                    )
                named[topic_partition] = None
                target = self._target(topic_partition, one, may_change_factor)
            except KafkaError as error:
                result.error, result.message = error.code, error.message
            else:
                targets.append((result, target))
        self._overrule({result.topic_partition: target for result, target in targets})
        for result, target in targets:
            try:
                result.write = self._begin(result.topic_partition, target)
            except KafkaError as error:
                result.error, result.message = error.code, error.message
        return True

    def list(self, asked: ReassignmentsListAsked) -> None:
        """Tell which of the partitions asked for are being moved (KIP-455)."""
        named = asked.request.topics
        if named is None:
            wanted: Iterable[TopicPartition] = sorted(self._image.moving)
        else:
            wanted = dict.fromkeys(
                TopicPartition(topic.name, number)
                for topic in named
                for number in topic.partition_indexes
            )
        found: dict[str, OngoingTopicReassignment] = {}
        for topic_partition in wanted:
            move = self._image.move(topic_partition)
            if move is None or self._image.is_deleting(topic_partition.topic):
                continue
            name = topic_partition.topic
            topic = found.setdefault(name, OngoingTopicReassignment(name, []))
            topic.partitions.append(
                OngoingPartitionReassignment(
                    topic_partition.partition,
                    self._image.assigned(topic_partition),
                    tuple(one for one in move.adding if one not in move.removing),
                    move.removing,
                )
            )
        response = ListPartitionReassignmentsResponse(topics=list(found.values()))
        self._draft.decision.ready_answers.append((asked.ticket, response))

    def _target(
        self, topic_partition: TopicPartition, one: ReassignablePartition, may_change_factor: bool
    ) -> tuple[int, ...]:
        reassignment.topic_of(topic_partition, self._image)
        if one.replicas is None:
            return reassignment.original_of(topic_partition, self._image)
        target = tuple(one.replicas)
        reassignment.check_target(topic_partition, target, self._image, may_change_factor)
        return target

    def _is_free(self, topic_partition: TopicPartition) -> bool:
        return not (
            self._draft.is_written(topic_partition) or topic_partition.topic in self._draft.resized
        )

    # the administrator's node

    def look_at_requests(self) -> None:
        """Begin what `/admin/reassign_partitions` asks for, take out of it what is done or cannot
        be, and note in it which replicas there were (R1)."""
        found = self._image.reassignments
        if found is None:
            return
        kept: dict[TopicPartition, ReassignmentEntry] = {}
        for topic_partition, entry in found.entries.items():
            try:
                left = self._look_at(entry)
            except KafkaError as error:
                self._draft.decision.refused.append((topic_partition, error.message))
                continue
            if left is not None:
                kept[topic_partition] = left
        if kept != found.entries or not kept:
            self._keep(kept)

    def _look_at(self, entry: ReassignmentEntry) -> ReassignmentEntry | None:
        """What is left of an entry, None for one that is done. Raises KafkaError."""
        topic_partition, target, _ = entry
        image = self._image
        if topic_partition.topic in image.unreadable or topic_partition in image.unreadable_states:
            return entry
        reassignment.topic_of(topic_partition, image)
        if not self._is_free(topic_partition):
            return entry
        move = image.move(topic_partition)
        assigned = image.assigned(topic_partition)
        if move is None and assigned == target:
            return None
        if move is not None and (
            moves.target_of(assigned, move) == target or image.is_completing(topic_partition)
        ):
            return entry._replace(original=move.original)
        reassignment.check_target(topic_partition, target, image)
        self._begin(topic_partition, target)
        begun = self._nodes[topic_partition.topic].moves.get(topic_partition.partition)
        return None if begun is None else entry._replace(original=begun.original)

    def _overrule(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Take entries out of the administrator's node that a newer request overrules, before that
        is begun: the next controller would turn back to them otherwise."""
        found = self._image.reassignments
        if found is None:
            return
        kept = {
            topic_partition: entry
            for topic_partition, entry in found.entries.items()
            if targets.get(topic_partition, entry.replicas) == entry.replicas
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
        left = {one: entry for one, entry in entries.items() if one in earlier.entries}
        self._draft.decision.writes[self._kept] = KeepReassignments(left, found.version)

    # beginning and ending

    def _begin(self, topic_partition: TopicPartition, target: tuple[int, ...]) -> int | None:
        """Lead a partition to `target`; the index of the write, None where it is there or on its
        way already. Raises KafkaError where the topic's node has no room."""
        image = self._image
        move = image.move(topic_partition)
        assigned = image.assigned(topic_partition)
        if target == (assigned if move is None else moves.target_of(assigned, move)):
            return None
        full, begun = moves.toward(target, assigned, move)
        node = self._node(topic_partition.topic, begun)
        partition = topic_partition.partition
        node.assignments[partition] = full
        if begun is None:
            node.moves.pop(partition, None)
            self._draft.decision.shown[topic_partition] = None
            return node.write
        node.moves[partition] = begun
        node.begun[partition] = None
        state = image.states.get(topic_partition)
        if state is not None:
            self._draft.write_state(
                WritePartitionState(
                    topic_partition,
                    moves.told_anew(state, self._draft.settings.controller_epoch),
                    state.partition_epoch,
                    new_replicas=tuple(one for one in full if one not in assigned),
                )
            )
        return node.write

    def advance(self, topic_partition: TopicPartition) -> None:
        """Complete a reassignment, or end it, if its time has come."""
        image = self._image
        move = image.move(topic_partition)
        state = image.states.get(topic_partition)
        if (
            move is None
            or state is None
            or image.is_deleting(topic_partition.topic)
            or not self._is_free(topic_partition)
        ):
            return
        node = self._nodes.get(topic_partition.topic)
        if node is not None and node.moves.get(topic_partition.partition) is not move:
            return  # this decision has turned it another way
        target = moves.target_of(image.assigned(topic_partition), move)
        if image.is_completing(topic_partition):
            if image.has_left(topic_partition):
                self._end(topic_partition, target)
            return
        done = moves.completed(
            state,
            target,
            image.brokers,
            image.absent(topic_partition),
            self._draft.settings.controller_epoch,
        )
        if done is not None:
            self._draft.write_state(
                WritePartitionState(topic_partition, done, state.partition_epoch)
            )

    def _end(self, topic_partition: TopicPartition, target: tuple[int, ...]) -> None:
        """The node is written last: whoever was to go is gone (V52)."""
        node = self._node(topic_partition.topic, None)
        node.assignments[topic_partition.partition] = target
        node.moves.pop(topic_partition.partition, None)
        self._draft.decision.shown[topic_partition] = None

    def _node(self, name: str, begun: Move | None) -> _Node:
        """The node to write; KafkaError where it has no room for another move."""
        node = self._nodes.get(name)
        if node is None:
            topic = self._image.topics[name]
            under_way = topic.moves.values()
            node = _Node(topic, -1, dict(topic.assignments), dict(topic.moves), {}, 0, 0)
            node.lists = len(topic.assignments) + 3 * len(under_way)
            node.ids = sum(map(len, topic.assignments.values()))
            node.ids += sum(len(m.adding) + len(m.removing) + len(m.original) for m in under_way)
        if begun is not None:
            lists = node.lists + 3
            # Those that are added are among the replicas, too.
            ids = node.ids + 2 * len(begun.adding) + len(begun.removing) + len(begun.original)
            topics.check_size(lists, ids, max(self._image.brokers, default=0))
            node.lists, node.ids = lists, ids
        if node.write < 0:
            node.write = self._draft.add(WriteAssignments(node.topic))
            self._draft.reassigned[name] = None
            self._nodes[name] = node
        return node
