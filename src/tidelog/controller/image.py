"""The controller's image: published state, and the progress of commands to brokers.

The image changes only by `apply`. A change is a fact: read from the store, written to the store, or
reported by a broker (DESIGN.md, rule 6). The image is read-only while a decision is made and while
commands are built. An index lists the partitions of each broker, so that the cost of a broker's
failure grows only with that broker's partitions. If a topic's node cannot be read, the image has
only the topic's name. The controller leaves the topic unchanged, and its full commands make brokers
keep the topic's replicas (V35). If a partition's state node cannot be read, the image has no state
of the partition, and the controller leaves the partition unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from tidelog.controller import records
from tidelog.controller.records import (
    AcceptedRequest,
    Deletion,
    LastProducerId,
    Move,
    Presence,
    Recovery,
    Removal,
    RequestedReassignments,
    RequestNode,
    Topic,
)
from tidelog.controller.unproven_states import unproven
from tidelog.core.errors import InvariantError
from tidelog.core.leader_wait import LeaderWait
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import (
    BrokerInfo,
    PartitionState,
    StoreWentBack,
    TopicId,
    TopicPartition,
)


class Change(ABC):
    """A fact that changes the image."""

    __slots__ = ()

    @abstractmethod
    def apply(self, image: Image) -> None:
        """Apply the fact to the image; called by `Image.apply` only."""


_NOBODY: dict[int, Presence] = {}


class Image:
    """The controller's knowledge of the cluster: all modules read it, only `apply` changes it."""

    def __init__(self) -> None:
        self.brokers: Mapping[int, BrokerInfo] = {}
        self.topics: dict[str, Topic] = {}
        self.unreadable: dict[str, str] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        #: Why the state node of a partition cannot be read; such a partition is not in `states`.
        self.unreadable_states: dict[TopicPartition, str] = {}
        self.deletions: dict[str, Deletion] = {}
        self.removals: dict[str, Removal] = {}
        #: Last states of partitions that a topic no longer has; None for a partition that the topic
        #: never had. Only partitions that were looked up in the store are in `former`.
        self.former: dict[TopicPartition, PartitionState | None] = {}
        #: The last allocated producer id; None until its node was read, or if the node cannot be
        #: read.
        self.producer_ids: LastProducerId | None = None
        #: Partitions that are being reassigned.
        self.moving: dict[TopicPartition, None] = {}
        #: Content of `/admin/reassign_partitions`; None if the node does not exist.
        self.reassignments: RequestedReassignments | None = None
        #: Whether `/admin/cancel_reassignment_in_progress` exists (R2).
        self.cancels_all = False
        #: Whether `/admin/reassign_cancel` exists, which keeps reassignments from beginning (R11).
        self.is_frozen = False
        #: Content of `/admin/reassign_partitions_queue`; None if the node does not exist (R8).
        self.queue: RequestedReassignments | None = None
        #: Stored reassignment requests that the controller has not accepted yet (R12).
        self.request_nodes: tuple[RequestNode, ...] = ()
        #: Accepted requests whose reassignments are not over (R12).
        self.accepted: dict[TopicPartition, AcceptedRequest] = {}
        #: Reassignments whose added replicas do not copy at present, and the reason.
        self.paused: dict[TopicPartition, str] = {}
        #: Live brokers that were commanded to delete a removed replica, and have not acknowledged
        #: the command (V52).
        self.leaving: dict[TopicPartition, dict[int, None]] = {}
        #: What brokers reported about their replicas of a partition: present, lost or offline (D3,
        #: D4). `presences` has a partition only while a broker reports its replica as lost or
        #: offline.
        self.presences: dict[TopicPartition, dict[int, Presence]] = {}
        #: Recoveries by proof under way (E6).
        self.recoveries: dict[TopicPartition, Recovery] = {}
        #: The serial number that the next recovery gets (`Recovery.serial`).
        self.next_recovery = 0
        #: The members for which partitions without a leader wait, as last sent to brokers; for
        #: display only.
        self.waits: dict[TopicPartition, LeaderWait] = {}
        #: Why replicas are outside the ISR, if this controller term knows the cause; for display
        #: only.
        self.shrinks: dict[TopicPartition, dict[int, ShrinkCause]] = {}
        #: Brokers whose last registration has ended; True if it ended by a controlled shutdown.
        self.ended: dict[int, bool] = {}
        #: The node that records that the store lost its latest writes; None if there is no such
        #: node (E8).
        self.went_back: StoreWentBack | None = None
        self._names: dict[TopicId, str] = {}
        self._hosted: dict[int, dict[TopicPartition, None]] = {}
        self._is_read_only = False

    # reading

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic that exists, None for any other id (V23)."""
        return self._names.get(topic_id)

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return the replicas of a partition; empty for a partition that does not exist.

        A replica that a reassignment is to remove stays in the result until the reassignment
        reaches its target (V52).
        """
        topic = self.topics.get(topic_partition.topic)
        if topic is None:
            return ()
        assigned = topic.assignments.get(topic_partition.partition, ())
        if not topic.moves:
            return assigned
        move = topic.moves.get(topic_partition.partition)
        state = None if move is None else self.states.get(topic_partition)
        if move is None or state is None or not records.is_completing(state, assigned, move):
            return assigned
        return state.reassigned_to

    def assigned(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return all replicas that the topic's node names, including replicas to be removed."""
        topic = self.topics.get(topic_partition.topic)
        return () if topic is None else topic.assignments.get(topic_partition.partition, ())

    def move(self, topic_partition: TopicPartition) -> Move | None:
        """Return the reassignment of a partition, None for a partition without a reassignment."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.moves.get(topic_partition.partition)

    def is_completing(self, topic_partition: TopicPartition) -> bool:
        """Return whether a reassignment's published state has only the target replicas (V52)."""
        state = self.states.get(topic_partition)
        if state is None or not state.reassigned_to:
            return False
        move = self.move(topic_partition)
        return move is not None and records.is_completing(
            state, self.assigned(topic_partition), move
        )

    @property
    def has_requests(self) -> bool:
        """Whether a node of the store requests reassignments or their cancellation."""
        return bool(
            self.reassignments is not None
            or self.queue is not None
            or self.request_nodes
            or self.accepted
            or self.cancels_all
        )

    def has_left(self, topic_partition: TopicPartition) -> bool:
        """Return whether all live brokers have deleted the replicas that a reassignment removed."""
        return self.leaving.get(topic_partition) == {}

    def is_deleting(self, topic: str) -> bool:
        """Return whether a topic is queued for deletion."""
        return topic in self.deletions

    def closing(self, topic: str) -> range:
        """Return the partitions of a topic that accept no more records, before their removal.

        A partition is in the result if its own removal and the removal of all higher partitions is
        requested. Partition 0 is never in the result (V71). The result is empty while any partition
        of the topic is being reassigned: removals wait for the end of the reassignment.
        """
        removal, known = self.removals.get(topic), self.topics.get(topic)
        if removal is None or known is None or known.moves or self.is_deleting(topic):
            return range(0)
        count = first = len(known.assignments)
        while first > 1 and first - 1 in removal.requested:
            first -= 1
        return range(first, count)

    def hosted_by(self, broker_id: int) -> Iterable[TopicPartition]:
        """Return the partitions assigned to a broker, also partitions of topics being deleted."""
        return self._hosted.get(broker_id, {}).keys()

    def count_hosted_by(self, broker_id: int) -> int:
        """Return the number of partitions that `hosted_by` returns."""
        return len(self._hosted.get(broker_id, {}))

    def partitions(self) -> Iterator[TopicPartition]:
        """Yield every partition of every readable topic."""
        for topic in self.topics.values():
            yield from topic.partitions

    def presence(self, topic_partition: TopicPartition) -> Mapping[int, Presence]:
        """Return the reported replica presence by broker; empty if every broker has its replica."""
        return self.presences.get(topic_partition, _NOBODY)

    def absent(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return live brokers whose replica does not serve, as it is lost or offline (D3, V12)."""
        answers = self.presences.get(topic_partition)
        if answers is None:
            return ()
        return tuple(
            broker_id for broker_id, found in answers.items() if found is not Presence.HERE
        )

    def offline(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return live brokers whose replica is in a failed log directory (D4)."""
        answers = self.presences.get(topic_partition)
        if answers is None:
            return ()
        return tuple(broker_id for broker_id, found in answers.items() if found is Presence.OFFLINE)

    def as_far_as_proven(
        self, topic_partition: TopicPartition, state: PartitionState
    ) -> PartitionState:
        """Return `state`, marked as unproven if it is older than `went_back` (E8)."""
        mark = self.went_back
        if mark is None or state.is_unproven or state.removed or not state.isr:
            return state
        if state.mzxid >= mark.zxid:
            return state
        return unproven(state, self.assigned(topic_partition), mark.skipped)

    def key(self) -> tuple[object, ...]:
        """Return a hashable form for the model checker; equal forms mean equal decisions."""
        return (
            tuple(
                sorted(
                    (
                        broker.broker_id,
                        broker.broker_epoch,
                        broker.previous_broker_epoch,
                        broker.earlier_broker_epochs,
                        broker.is_leaving,
                    )
                    for broker in self.brokers.values()
                )
            ),
            tuple(
                (
                    name,
                    topic.topic_id,
                    topic.unclean,
                    topic.min_insync_replicas,
                    topic.version,
                    len(topic.assignments),
                )
                for name, topic in sorted(self.topics.items())
            ),
            tuple(
                (
                    partition,
                    self.assigned(partition),
                    self.move(partition),
                    tuple(self.leaving.get(partition, (-1,))),
                )
                for partition in sorted(self.moving)
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
                (
                    topic_partition,
                    tuple(sorted((broker_id, each.value) for broker_id, each in answers.items())),
                )
                for topic_partition, answers in sorted(self.presences.items())
            ),
            tuple((one, found.key()) for one, found in sorted(self.recoveries.items())),
            self.went_back,
            self.producer_ids,
            self.cancels_all,
            self.is_frozen,
            tuple(sorted(self.paused)),
            None if self.queue is None else tuple(self.queue.entries.items()),
            tuple(node.path for node in self.request_nodes),
            tuple(
                sorted((partition, found.replicas) for partition, found in self.accepted.items())
            ),
        )

    def copy(self) -> Image:
        """Return an independent copy."""
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
        other.cancels_all = self.cancels_all
        other.is_frozen, other.queue = self.is_frozen, self.queue
        other.request_nodes, other.accepted = self.request_nodes, dict(self.accepted)
        other.paused = dict(self.paused)
        other.leaving = {tp: dict(waiting) for tp, waiting in self.leaving.items()}
        other._names = dict(self._names)
        other._hosted = {broker_id: dict(held) for broker_id, held in self._hosted.items()}
        other.presences = {tp: dict(answers) for tp, answers in self.presences.items()}
        other.next_recovery = self.next_recovery
        other.recoveries = {tp: recovery.copy() for tp, recovery in self.recoveries.items()}
        other.waits = dict(self.waits)
        other.shrinks = {tp: dict(causes) for tp, causes in self.shrinks.items()}
        other.ended = dict(self.ended)
        other.went_back = self.went_back
        return other

    # changing

    def apply(self, change: Change) -> None:
        """Apply a change to the image. Raises InvariantError while the image is read-only."""
        if self._is_read_only:
            raise InvariantError(f"the image changes while it is read: {change}")
        change.apply(self)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Forbid changes of the image in this context, so that derived values are consistent."""
        self._is_read_only = True
        try:
            yield
        finally:
            self._is_read_only = False

    # Building blocks of changes.

    def add_topic(self, topic: Topic, states: Mapping[int, PartitionState]) -> None:
        """Add a topic in place of any topic of its name; paused reassignments stay paused."""
        paused = {each: why for each, why in self.paused.items() if each.topic == topic.name}
        self.remove_topic(topic.name)
        self.unreadable.pop(topic.name, None)
        self._names[topic.topic_id] = topic.name
        self.place(topic, states)
        self.paused.update({each: why for each, why in paused.items() if each in self.moving})

    def place(self, topic: Topic, states: Mapping[int, PartitionState]) -> None:
        """Add or replace a topic; `states` are the states of its new partitions, by partition
        number.
        """
        self.topics[topic.name] = topic
        for topic_partition in topic.partitions:
            for replica in topic.assignments[topic_partition.partition]:
                self._hosted.setdefault(replica, {})[topic_partition] = None
            self.former.pop(topic_partition, None)
            state = states.get(topic_partition.partition)
            if state is not None:
                self.states[topic_partition] = self.as_far_as_proven(topic_partition, state)
        for partition in topic.moves:
            self.moving[TopicPartition(topic.name, partition)] = None

    def assign(self, topic: Topic) -> None:
        """Replace the replicas and reassignments of a topic; its partition states stay."""
        before = self.topics[topic.name]
        assert before.partitions == topic.partitions, f"other partitions: {topic}"
        for partition, replicas in before.assignments.items():
            if replicas is topic.assignments[partition]:
                continue
            topic_partition = TopicPartition(topic.name, partition)
            for replica in replicas:
                self._hosted[replica].pop(topic_partition, None)
        for partition in before.moves:
            if before.moves[partition] is not topic.moves.get(partition):
                self.end_move(TopicPartition(topic.name, partition))
        self.place(topic, {})

    def end_move(self, topic_partition: TopicPartition) -> None:
        """Drop a reassignment, and the list of brokers that had to delete replicas for it."""
        self.moving.pop(topic_partition, None)
        self.leaving.pop(topic_partition, None)
        self.paused.pop(topic_partition, None)

    def remove_topic(self, name: str) -> None:
        """Drop a topic and its partitions."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self._names.pop(topic.topic_id, None)
        for partition, replicas in topic.assignments.items():
            topic_partition = TopicPartition(name, partition)
            self.states.pop(topic_partition, None)
            self.unreadable_states.pop(topic_partition, None)
            self.presences.pop(topic_partition, None)
            self.recoveries.pop(topic_partition, None)
            self._forget_display(topic_partition)
            self.end_move(topic_partition)
            for replica in replicas:
                self._hosted[replica].pop(topic_partition, None)

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Drop a partition that its topic no longer has.

        The partition's last state stays in `former` (V71).
        """
        self.former[topic_partition] = self.states.pop(topic_partition, None)
        self.unreadable_states.pop(topic_partition, None)
        self.presences.pop(topic_partition, None)
        self.recoveries.pop(topic_partition, None)
        self._forget_display(topic_partition)
        for hosted in self._hosted.values():
            hosted.pop(topic_partition, None)

    def _forget_display(self, topic_partition: TopicPartition) -> None:
        self.waits.pop(topic_partition, None)
        self.shrinks.pop(topic_partition, None)

    def forget_former(self, name: str) -> None:
        """Drop the former incarnations of a topic's partitions; they must be read again (V71)."""
        for topic_partition in [partition for partition in self.former if partition.topic == name]:
            del self.former[topic_partition]
