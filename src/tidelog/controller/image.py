"""What the controller knows: published state, and how far its commands have come.

Changes only by `apply`, and a change is a fact: something read from the store, written to it, or
answered by a broker (DESIGN.md, rule 6). Decides nothing. Partitions are indexed by the brokers
they are assigned to, so that an event costs what it touches. Topics whose nodes cannot be read are
known by name only: they are left alone and named as "keep" in full commands (V35). So are single
partitions whose state nodes cannot be read; those have no state here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidelog.controller import moves
from tidelog.controller.changes import (
    AssignmentsWritten,
    BrokersChanged,
    Change,
    DeletionCommanded,
    DeletionRequested,
    LeavingCommanded,
    PartitionsAdded,
    PartitionsClosed,
    PartitionsDrained,
    PartitionsRemoved,
    ProducerIdsFound,
    ReassignmentsFound,
    RemovalChange,
    RemovalCommanded,
    RemovalsAdded,
    RemovalsRequested,
    ReplicaAnswered,
    ReplicasRemade,
    ReplicasStopped,
    ShutdownBegun,
    StatePublished,
    StateUnreadable,
    Topic,
    TopicFound,
    TopicGone,
    TopicUnreadable,
    UncleanChanged,
)
from tidelog.controller.moves import Move
from tidelog.core.types import (
    BrokerInfo,
    PartitionState,
    TopicId,
    TopicPartition,
)


@dataclass(slots=True)
class Deletion:
    """A topic on its way out (V22)."""

    #: Whether the brokers have been told.
    commanded: bool = False
    #: Replicas of live brokers that have not answered, by broker.
    waiting: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Nobody alive holds the topic any more: its nodes can go."""
        return self.commanded and not self.waiting


@dataclass(slots=True)
class Removal:
    """Partitions of one topic on their way out (V71)."""

    #: Number -> whether every group is to have read it first.
    requested: dict[int, bool] = field(default_factory=dict)
    #: Those that the topic's node does not have any more: there is no request for them to leave.
    by_edit: dict[int, None] = field(default_factory=dict)
    #: Those whose leaders were told to take no more records, and go on meanwhile.
    closed: dict[int, None] = field(default_factory=dict)
    #: Those that every group has read.
    drained: dict[int, None] = field(default_factory=dict)
    #: Those whose brokers have been told.
    commanded: dict[int, None] = field(default_factory=dict)
    #: Replicas of live brokers that have not answered, by broker.
    waiting: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Nobody alive holds what was commanded any more: the topic's node can do without."""
        return bool(self.commanded) and not self.waiting

    def copy(self) -> Removal:
        """An independent copy."""
        return Removal(
            dict(self.requested),
            dict(self.by_edit),
            dict(self.closed),
            dict(self.drained),
            dict(self.commanded),
            {broker_id: dict(waiting) for broker_id, waiting in self.waiting.items()},
        )

    def key(self) -> tuple[object, ...]:
        """Equal for removals that go on alike."""
        return (
            tuple(sorted(self.requested.items())),
            tuple(sorted(self.by_edit)),
            tuple(sorted(self.closed)),
            tuple(sorted(self.drained)),
            tuple(sorted(self.commanded)),
            tuple((one, tuple(sorted(self.waiting[one]))) for one in sorted(self.waiting)),
        )


_NOBODY: dict[int, bool] = {}


class Image:
    """The controller's knowledge of the cluster. Read freely; change by `apply` only."""

    def __init__(self) -> None:
        self.brokers: Mapping[int, BrokerInfo] = {}
        self.topics: dict[str, Topic] = {}
        self.unreadable: dict[str, str] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        #: Why the state node of a partition cannot be read; it has no state above.
        self.unreadable_states: dict[TopicPartition, str] = {}
        self.deletions: dict[str, Deletion] = {}
        self.removals: dict[str, Removal] = {}
        #: Last states of partitions that a topic has no more, None where it never had any; only
        #: of numbers that were looked at.
        self.former: dict[TopicPartition, PartitionState | None] = {}
        #: None until the node was read, or where it cannot be read.
        self.producer_ids: ProducerIdsFound | None = None
        #: Partitions that are being reassigned.
        self.moving: dict[TopicPartition, None] = {}
        #: `/admin/reassign_partitions`, None where there is no such node.
        self.reassignments: ReassignmentsFound | None = None
        #: Live brokers that were told to give up their replica, and have not answered (V52).
        self._leaving: dict[TopicPartition, dict[int, None]] = {}
        self._names: dict[TopicId, str] = {}
        self._hosted: dict[int, dict[TopicPartition, None]] = {}
        self._presence: dict[TopicPartition, dict[int, bool]] = {}

    # reading

    def topic_name(self, topic_id: TopicId) -> str | None:
        """The name of a topic that exists, None for any other id (V23)."""
        return self._names.get(topic_id)

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """The replicas that count; empty for a partition that does not exist. Those that a
        reassignment takes away count until its target is all there is (V52)."""
        topic = self.topics.get(topic_partition.topic)
        if topic is None:
            return ()
        assigned = topic.assignments.get(topic_partition.partition, ())
        move = topic.moves.get(topic_partition.partition)
        if move is None or not moves.is_completing(
            self.states.get(topic_partition), assigned, move
        ):
            return assigned
        return moves.target_of(assigned, move)

    def assigned(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """All replicas that the topic's node names, those that are to go included."""
        topic = self.topics.get(topic_partition.topic)
        return () if topic is None else topic.assignments.get(topic_partition.partition, ())

    def move(self, topic_partition: TopicPartition) -> Move | None:
        """The reassignment of a partition, None where there is none."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.moves.get(topic_partition.partition)

    def is_completing(self, topic_partition: TopicPartition) -> bool:
        """Whether a reassignment's target is all there is already (V52)."""
        move = self.move(topic_partition)
        return move is not None and moves.is_completing(
            self.states.get(topic_partition), self.assigned(topic_partition), move
        )

    def has_left(self, topic_partition: TopicPartition) -> bool:
        """Whether live brokers were told to give up what a reassignment took away, and did."""
        return self._leaving.get(topic_partition) == {}

    def is_deleting(self, topic: str) -> bool:
        """Whether the topic is queued for deletion."""
        return topic in self.deletions

    def closing(self, topic: str) -> range:
        """The partitions of a topic that take no more records as they are about to be removed: the
        highest, as far down as they are all requested, and never the first (V71). None while any
        of the topic are being reassigned: removals wait for that."""
        removal, known = self.removals.get(topic), self.topics.get(topic)
        if removal is None or known is None or known.moves or self.is_deleting(topic):
            return range(0)
        count = first = len(known.assignments)
        while first > 1 and first - 1 in removal.requested:
            first -= 1
        return range(first, count)

    def hosted_by(self, broker_id: int) -> Iterable[TopicPartition]:
        """Partitions assigned to a broker, those of topics being deleted included."""
        return self._hosted.get(broker_id, {}).keys()

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition of every readable topic."""
        for topic in self.topics.values():
            yield from topic.partitions

    def presence(self, topic_partition: TopicPartition) -> Mapping[int, bool]:
        """Who said that it has the replica, or that it has not; only where somebody had not."""
        return self._presence.get(topic_partition, _NOBODY)

    def absent(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Live brokers that said that they do not have the replica (D3)."""
        answers = self._presence.get(topic_partition)
        if answers is None:
            return ()
        return tuple(broker_id for broker_id, present in answers.items() if not present)

    def key(self) -> tuple[object, ...]:
        """Equal for images that decide alike."""
        return (
            tuple(
                sorted(
                    (
                        broker.broker_id,
                        broker.broker_epoch,
                        broker.previous_broker_epoch,
                        broker.is_leaving,
                    )
                    for broker in self.brokers.values()
                )
            ),
            tuple(
                (name, topic.topic_id, topic.unclean, topic.version, len(topic.assignments))
                for name, topic in sorted(self.topics.items())
            ),
            tuple(
                (one, self.assigned(one), self.move(one), tuple(self._leaving.get(one, (-1,))))
                for one in sorted(self.moving)
            ),
            tuple(sorted(self.states.items(), key=lambda item: item[0])),
            tuple(sorted(self.unreadable_states)),
            tuple(
                (name, deletion.commanded, tuple(sorted(deletion.waiting)))
                for name, deletion in sorted(self.deletions.items())
            ),
            tuple((name, removal.key()) for name, removal in sorted(self.removals.items())),
            tuple(sorted(self.former.items(), key=lambda item: item[0])),
            tuple(
                (topic_partition, tuple(sorted(answers.items())))
                for topic_partition, answers in sorted(self._presence.items())
            ),
            self.producer_ids,
        )

    def copy(self) -> Image:
        """An independent copy."""
        other = Image()
        other.brokers = dict(self.brokers)
        other.topics = dict(self.topics)
        other.unreadable = dict(self.unreadable)
        other.states = dict(self.states)
        other.unreadable_states = dict(self.unreadable_states)
        other.deletions = {
            name: Deletion(
                deletion.commanded,
                {broker_id: dict(waiting) for broker_id, waiting in deletion.waiting.items()},
            )
            for name, deletion in self.deletions.items()
        }
        other.removals = {name: removal.copy() for name, removal in self.removals.items()}
        other.former = dict(self.former)
        other.producer_ids = self.producer_ids
        other.moving = dict(self.moving)
        other.reassignments = self.reassignments
        other._leaving = {tp: dict(waiting) for tp, waiting in self._leaving.items()}
        other._names = dict(self._names)
        other._hosted = {broker_id: dict(held) for broker_id, held in self._hosted.items()}
        other._presence = {tp: dict(answers) for tp, answers in self._presence.items()}
        return other

    # changing

    def apply(self, change: Change) -> None:
        """Take over a fact."""
        match change:
            case StatePublished():
                if change.topic_partition.topic in self.topics:
                    self.states[change.topic_partition] = change.state
                    self.unreadable_states.pop(change.topic_partition, None)
                    self.former.pop(change.topic_partition, None)
            case StateUnreadable():
                self.states.pop(change.topic_partition, None)
                self._presence.pop(change.topic_partition, None)
                self.unreadable_states[change.topic_partition] = change.reason
            case TopicFound():
                self._add_topic(change)
            case PartitionsAdded():
                self._place(change.topic, change.states)
            case AssignmentsWritten():
                self._assign(change.topic)
            case LeavingCommanded():
                self._leaving[change.topic_partition] = dict.fromkeys(change.brokers)
            case UncleanChanged():
                topic = self.topics.get(change.name)
                if topic is not None:
                    self.topics[change.name] = replace(topic, unclean=change.unclean)
            case BrokersChanged():
                self._replace_brokers(change.brokers)
            case ShutdownBegun():
                leaving = replace(self.brokers[change.broker_id], is_leaving=True)
                self.brokers = {**self.brokers, change.broker_id: leaving}
            case ReplicaAnswered():
                answers = self._presence.setdefault(change.topic_partition, {})
                answers[change.broker_id] = change.present
                if all(answers.values()):
                    del self._presence[change.topic_partition]
            case ReplicasRemade():
                self._presence.pop(change.topic_partition, None)
            case TopicGone():
                self._remove_topic(change.name)
                self.deletions.pop(change.name, None)
                self.unreadable.pop(change.name, None)
                self.removals.pop(change.name, None)
                for topic_partition in [one for one in self.former if one.topic == change.name]:
                    del self.former[topic_partition]
            case TopicUnreadable():
                self._remove_topic(change.name)
                self.unreadable[change.name] = change.reason
            case DeletionRequested():
                self.deletions.setdefault(change.name, Deletion())
            case DeletionCommanded():
                self.deletions[change.name] = Deletion(
                    commanded=True,
                    waiting={
                        broker_id: dict.fromkeys(replicas)
                        for broker_id, replicas in change.replicas.items()
                    },
                )
            case ReplicasStopped():
                for topic_partition in change.topic_partitions:
                    self._stopped(change.broker_id, topic_partition)
            case ProducerIdsFound():
                self.producer_ids = change
            case _:
                self._apply_removal(change)

    def _apply_removal(self, change: RemovalChange) -> None:
        match change:
            case RemovalsRequested():
                self._replace_requests(change.wanted)
            case RemovalsAdded():
                removal = self.removals.setdefault(change.name, Removal())
                removal.requested.update(change.wanted)
                if change.by_edit:
                    removal.by_edit.update(dict.fromkeys(change.wanted))
            case PartitionsClosed():
                removal = self.removals[change.name]
                removal.closed = dict.fromkeys(change.partitions)
                if not removal.requested and not removal.closed:
                    del self.removals[change.name]
            case PartitionsDrained():
                drained = self.removals.get(change.name)
                if drained is not None:
                    drained.drained.update(dict.fromkeys(change.partitions))
            case RemovalCommanded():
                removal = self.removals[change.name]
                removal.commanded.update(dict.fromkeys(change.partitions))
                for broker_id, replicas in change.replicas.items():
                    removal.waiting.setdefault(broker_id, {}).update(dict.fromkeys(replicas))
            case PartitionsRemoved():
                self._remove_partitions(change.topic, change.partitions)
            case _:
                self.former.update(change.states)

    def _replace_requests(self, wanted: Mapping[str, Mapping[int, bool]]) -> None:
        """What is not requested any more and not commanded yet stays."""
        for name in list(self.removals):
            removal = self.removals[name]
            asked = wanted.get(name, {})
            for partition in list(removal.requested):
                kept = partition in removal.commanded or partition in removal.by_edit
                if partition not in asked and not kept:
                    del removal.requested[partition]
                    removal.drained.pop(partition, None)
            if not removal.requested and not removal.closed:
                del self.removals[name]
        for name, partitions in wanted.items():
            self.removals.setdefault(name, Removal()).requested.update(partitions)

    def _remove_partitions(self, topic: Topic, partitions: tuple[int, ...]) -> None:
        self.topics[topic.name] = topic
        removal = self.removals.get(topic.name, Removal())
        for partition in partitions:
            topic_partition = TopicPartition(topic.name, partition)
            self.former[topic_partition] = self.states.pop(topic_partition, None)
            self.unreadable_states.pop(topic_partition, None)
            self._presence.pop(topic_partition, None)
            for hosted in self._hosted.values():
                hosted.pop(topic_partition, None)
            for kept in (
                removal.requested,
                removal.by_edit,
                removal.closed,
                removal.drained,
                removal.commanded,
            ):
                kept.pop(partition, None)
        if not removal.requested and not removal.closed:
            self.removals.pop(topic.name, None)

    def _add_topic(self, change: TopicFound) -> None:
        topic = change.topic
        self._remove_topic(topic.name)
        self.unreadable.pop(topic.name, None)
        self._names[topic.topic_id] = topic.name
        self._place(topic, change.states)
        for partition, reason in change.unreadable.items():
            self.unreadable_states[TopicPartition(topic.name, partition)] = reason

    def _place(self, topic: Topic, states: Mapping[int, PartitionState]) -> None:
        self.topics[topic.name] = topic
        for topic_partition in topic.partitions:
            for replica in topic.assignments[topic_partition.partition]:
                self._hosted.setdefault(replica, {})[topic_partition] = None
            self.former.pop(topic_partition, None)
            state = states.get(topic_partition.partition)
            if state is not None:
                self.states[topic_partition] = state
        for partition in topic.moves:
            self.moving[TopicPartition(topic.name, partition)] = None

    def _assign(self, topic: Topic) -> None:
        """Other replicas, or other reassignments; states stay."""
        before = self.topics[topic.name]
        for partition, replicas in before.assignments.items():
            if replicas is topic.assignments[partition]:
                continue
            topic_partition = TopicPartition(topic.name, partition)
            for replica in replicas:
                self._hosted[replica].pop(topic_partition, None)
        for partition in before.moves:
            if before.moves[partition] is not topic.moves.get(partition):
                self._end_move(TopicPartition(topic.name, partition))
        self._place(topic, {})

    def _end_move(self, topic_partition: TopicPartition) -> None:
        self.moving.pop(topic_partition, None)
        self._leaving.pop(topic_partition, None)

    def _remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self._names.pop(topic.topic_id, None)
        for partition, replicas in topic.assignments.items():
            topic_partition = TopicPartition(name, partition)
            self.states.pop(topic_partition, None)
            self.unreadable_states.pop(topic_partition, None)
            self._presence.pop(topic_partition, None)
            self._end_move(topic_partition)
            for replica in replicas:
                self._hosted[replica].pop(topic_partition, None)

    def _replace_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        before, after = self.brokers, dict(brokers)
        self.brokers = after
        for broker_id, known in before.items():
            now = after.get(broker_id)
            if now is None or now.broker_epoch != known.broker_epoch:
                self._forget_answers_of(broker_id)
            elif known.is_leaving:
                after[broker_id] = replace(now, is_leaving=True)

    def _forget_answers_of(self, broker_id: int) -> None:
        """Another life begins, or none: what it said and what it was asked is over (V22, D3)."""
        leaving: list[Deletion | Removal] = [*self.deletions.values(), *self.removals.values()]
        for one in leaving:
            one.waiting.pop(broker_id, None)
        for replicas in self._leaving.values():
            replicas.pop(broker_id, None)
        for topic_partition in [tp for tp, told in self._presence.items() if broker_id in told]:
            answers = self._presence[topic_partition]
            del answers[broker_id]
            if all(answers.values()):
                del self._presence[topic_partition]

    def _stopped(self, broker_id: int, topic_partition: TopicPartition) -> None:
        self._leaving.get(topic_partition, {}).pop(broker_id, None)
        for leaving in (
            self.deletions.get(topic_partition.topic),
            self.removals.get(topic_partition.topic),
        ):
            if leaving is not None and broker_id in leaving.waiting:
                waiting = leaving.waiting[broker_id]
                waiting.pop(topic_partition, None)
                if not waiting:
                    del leaving.waiting[broker_id]
