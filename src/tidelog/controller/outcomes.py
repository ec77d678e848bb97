"""What became of a decision's writes: into the image, on the agenda what is to be looked at again.

A conflict in the store is a fact like any other: what the node holds instead is taken over, or it
is read again (V15). Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.controller import adoption
from tidelog.controller.agenda import Agenda
from tidelog.controller.changes import (
    AssignmentsWritten,
    DeletionRequested,
    PartitionsAdded,
    PartitionsRemoved,
    ProducerIdsFound,
    ReassignmentsFound,
    RemovalsAdded,
    ReplicasRemade,
    StatePublished,
    StateUnreadable,
    TopicFound,
    TopicGone,
)
from tidelog.controller.cluster_events import StateChange
from tidelog.controller.commands import Commands
from tidelog.controller.decision import (
    AddPartitions,
    Conflict,
    CreateTopic,
    KeepReassignments,
    Outcome,
    QueueDeletion,
    QueueRemovals,
    RemovePartitions,
    RemoveTopic,
    TakeProducerIds,
    Write,
    WriteAssignments,
    WritePartitionState,
    Written,
)
from tidelog.controller.image import Image
from tidelog.core.types import (
    BrokerInfo,
    PartitionState,
    TopicId,
    TopicPartition,
)


@dataclass(slots=True)
class Effects:
    """What follows from a decision that is durable."""

    #: By broker id; for its registration as the image has it.
    commands: dict[int, Commands]
    #: (ticket, message).
    answers: list[tuple[int, Any]] = field(default_factory=list)
    #: What was published, for those who watch.
    published: list[tuple[TopicPartition, PartitionState]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    #: Topics that are deleted although what is known of them could not be read.
    unread: list[str] = field(default_factory=list)
    #: Brokers that have handed over, with what they lead nevertheless.
    handed_over: list[tuple[int, Sequence[TopicPartition]]] = field(default_factory=list)
    #: Topics whose nodes somebody else has changed: read them again.
    reread: list[str] = field(default_factory=list)
    #: The same as `published`, with what held before.
    changes: list[StateChange] = field(default_factory=list)
    #: Registrations that have gone and come since the last decision.
    gone: list[BrokerInfo] = field(default_factory=list)
    arrived: list[BrokerInfo] = field(default_factory=list)
    #: Reassignments that an administrator's node asks for and that cannot be, and why.
    refused: list[tuple[TopicPartition, str]] = field(default_factory=list)
    #: Reassignments that have ended, and the replicas that there are now.
    reassigned: list[tuple[TopicPartition, tuple[int, ...]]] = field(default_factory=list)
    #: Topics whose nodes somebody has removed.
    vanished: list[str] = field(default_factory=list)
    #: Topics that this decision has made.
    made: list[str] = field(default_factory=list)
    #: What somebody left in the store and cannot be done, for the log.
    reports: list[str] = field(default_factory=list)


class Outcomes:
    """The outcomes of one decision."""

    def __init__(self, image: Image, agenda: Agenda, effects: Effects) -> None:
        self._image = image
        self._agenda = agenda
        self._effects = effects
        #: States that somebody else has changed.
        self.conflicts: list[WritePartitionState] = []

    def take(self, writes: Sequence[Write], outcomes: Sequence[Outcome]) -> None:
        """Take them over, in the order of the writes; the effects say what was published."""
        for write, outcome in zip(writes, outcomes, strict=True):
            self._take(write, outcome)

    def _take(self, write: Write, outcome: Outcome) -> None:
        effects = self._effects
        match write:
            case WritePartitionState():
                before = self._image.states.get(write.topic_partition)
                self._state_written(write, outcome)
                if isinstance(outcome, Conflict):
                    self.conflicts.append(write)
                else:
                    effects.published.append((write.topic_partition, write.state))
                    self._changed(write, before)
            case CreateTopic():
                if isinstance(outcome, Written):
                    effects.made.append(write.made.topic.name)
                    made = self._topic_made(write, outcome)
                    effects.published.extend(made)
                    effects.changes.extend(_first_changes(write.made.topic.topic_id, made))
            case AddPartitions():
                if isinstance(outcome, Written):
                    made = self._partitions_added(write, outcome)
                    effects.published.extend(made)
                    effects.changes.extend(_first_changes(write.growth.topic.topic_id, made))
                else:
                    self._number_unknown(write.growth.topic.name)
            case QueueRemovals():
                if isinstance(outcome, Written):
                    self._image.apply(RemovalsAdded(write.name, write.wanted))
            case RemovePartitions():
                if isinstance(outcome, Written):
                    self._image.apply(PartitionsRemoved(write.topic, write.partitions))
                else:
                    self._number_unknown(write.topic.name)
            case WriteAssignments():
                if isinstance(outcome, Written):
                    effects.reassigned.extend(self._assigned(write, outcome))
                else:
                    effects.reread.append(write.topic.name)
            case KeepReassignments():
                self._reassignments_kept(write, outcome)
            case QueueDeletion():
                self._image.apply(DeletionRequested(write.name))
                self._agenda.look_at_requests(self._image)
            case RemoveTopic():
                self._image.apply(TopicGone(write.name))
                effects.removed.append(write.name)
            case TakeProducerIds():
                self._producer_ids_taken(write, outcome)

    def _changed(self, write: WritePartitionState, before: PartitionState | None) -> None:
        topic = self._image.topics[write.topic_partition.topic]
        change = StateChange(
            write.topic_partition, topic.topic_id, before, write.state, write.asked_by_leader
        )
        self._effects.changes.append(change)

    def _state_written(self, write: WritePartitionState, outcome: Outcome) -> None:
        topic_partition = write.topic_partition
        if isinstance(outcome, Written):
            state = _modified_in(write.state, outcome.mzxid)
            self._image.apply(StatePublished(topic_partition, state))
            if write.is_new:
                self._image.apply(ReplicasRemade(topic_partition))
        elif outcome.state is not None:
            self._image.apply(StatePublished(topic_partition, outcome.state))
            self._agenda.dirty[topic_partition] = None
        else:
            before = self._image.states.get(topic_partition)
            if before is not None:
                self._effects.reports.append(adoption.last_known(topic_partition, before))
            self._image.apply(StateUnreadable(topic_partition, outcome.reason))
        if topic_partition in self._image.moving:
            self._agenda.moves[topic_partition] = None
            self._agenda.stopping[topic_partition] = None

    def _topic_made(
        self, write: CreateTopic, outcome: Written
    ) -> list[tuple[TopicPartition, PartitionState]]:
        topic = write.made.topic
        states = {
            partition: _modified_in(state, outcome.mzxid)
            for partition, state in write.made.states.items()
        }
        self._image.apply(TopicFound(topic, states))
        return [
            (TopicPartition(topic.name, partition), state) for partition, state in states.items()
        ]

    def _partitions_added(
        self, write: AddPartitions, outcome: Written
    ) -> list[tuple[TopicPartition, PartitionState]]:
        topic = write.growth.topic
        states = {
            partition: _modified_in(state, outcome.mzxid)
            for partition, state in write.growth.states.items()
        }
        self._image.apply(PartitionsAdded(topic, states))
        return [
            (TopicPartition(topic.name, partition), state) for partition, state in states.items()
        ]

    def _number_unknown(self, name: str) -> None:
        """Somebody else has changed the partitions of a topic: nothing is known of them."""
        self._effects.reread.append(name)
        for topic_partition in [one for one in self._image.former if one.topic == name]:
            del self._image.former[topic_partition]

    def _assigned(
        self, write: WriteAssignments, outcome: Written
    ) -> list[tuple[TopicPartition, tuple[int, ...]]]:
        """Take over a topic's node; returns the reassignments that are over with it."""
        topic = write.topic
        before = self._image.topics[topic.name].moves
        since = {
            partition: replace(topic.moves[partition], since_zxid=outcome.mzxid)
            for partition in write.begun
            if partition in topic.moves
        }
        self._image.apply(AssignmentsWritten(replace(topic, moves={**topic.moves, **since})))
        for partition in write.begun:
            topic_partition = TopicPartition(topic.name, partition)
            self._agenda.moves[topic_partition] = None
        ended = [partition for partition in before if partition not in topic.moves]
        if ended:
            self._agenda.look_at_requests(self._image)
        return [(TopicPartition(topic.name, one), topic.assignments[one]) for one in ended]

    def _reassignments_kept(self, write: KeepReassignments, outcome: Outcome) -> None:
        if isinstance(outcome, Conflict):
            # Somebody has changed the node: a watch tells, and it is read again.
            return
        found = ReassignmentsFound(write.expected_version + 1, write.entries)
        self._image.reassignments = found if write.entries else None

    def _producer_ids_taken(self, write: TakeProducerIds, outcome: Outcome) -> None:
        if isinstance(outcome, Written):
            self._image.apply(ProducerIdsFound(write.last, write.expected_version + 1))
        else:
            self._image.producer_ids = outcome.producer_ids


def _first_changes(
    topic_id: TopicId, made: Iterable[tuple[TopicPartition, PartitionState]]
) -> list[StateChange]:
    return [StateChange(topic_partition, topic_id, None, state) for topic_partition, state in made]


def _modified_in(state: PartitionState, mzxid: int) -> PartitionState:
    return replace(state, mzxid=mzxid)
