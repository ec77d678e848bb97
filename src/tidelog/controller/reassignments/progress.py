"""Reassignments in a decision: how they begin, proceed and end (V50, V52).

A reassignment begins with two writes. The first write puts all replicas, old and new, into the
topic's node. The second write publishes the state under the next leader epoch, with which the
replicas learn of the reassignment. When the target replicas are in sync, the controller publishes a
state with only the target replicas. Then the controller commands brokers to delete the removed
replicas, and at the end writes the topic's node again. Each step depends on published state only,
so the next controller continues where this controller stopped. A decision writes each partition and
each topic's node at most once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tidelog.controller import records
from tidelog.controller.agenda import Agenda
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.notices import TopicOutdated
from tidelog.controller.orders import Order, Rank, SendMetadata
from tidelog.controller.partitions import assignments
from tidelog.controller.reassignments import pausing, transitions
from tidelog.controller.records import Move, Topic
from tidelog.controller.settlement import Settlement
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.writes import Conflict, Outcome, Write
from tidelog.core.dataclass import dataclass
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import PartitionState, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class SweepDue(Event):
    """The periodic check of every reassignment is due, with or without other events (V50)."""


@dataclass(frozen=True, slots=True)
class ReassignmentBegun:
    """Notice: a reassignment begins, or is rolled back, and the topic's node is written."""

    topic_partition: TopicPartition
    topic_id: TopicId
    target: tuple[int, ...]
    move: Move


@dataclass(frozen=True, slots=True)
class ReassignmentEnded:
    """Notice of the end of a reassignment; `replicas` are the partition's replicas now."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    topic_id: TopicId
    #: Transaction that wrote the topic's node.
    zxid: int


@dataclass(frozen=True, slots=True)
class AssignmentsWritten(Change):
    """Change: a topic's node lists other replicas or other reassignments than before."""

    topic: Topic

    def apply(self, image: Image) -> None:
        """Replace the topic's assignment in the image; the states of its partitions stay."""
        image.assign(self.topic)


@dataclass(frozen=True, slots=True)
class LeavingCommanded(Change):
    """Change: brokers were commanded to delete replicas that a reassignment removed."""

    topic_partition: TopicPartition
    brokers: Sequence[int]

    def apply(self, image: Image) -> None:
        """Record the replicas whose deletion is not acknowledged."""
        assert image.is_completing(self.topic_partition), f"its target is not published: {self}"
        assert all(broker_id in image.brokers for broker_id in self.brokers), f"dead: {self}"
        image.leaving[self.topic_partition] = dict.fromkeys(self.brokers)


@dataclass(frozen=True, slots=True)
class DeleteReassignedReplicas(Order):
    """Command brokers to stop and delete the replicas that a reassignment removes (V52)."""

    topic_partition: TopicPartition
    brokers: Sequence[int]
    leader_epoch: int

    rank: ClassVar[Rank] = Rank.REASSIGNMENT

    def give(self, builder: CommandBuilder) -> None:
        """Add the StopReplicas to the brokers' commands."""
        for broker_id in self.brokers:
            builder.delete_replica(broker_id, self.topic_partition, self.leader_epoch)


@dataclass(frozen=True, slots=True)
class WriteAssignments(Write):
    """Write the node of a topic in which reassignments begin or end."""

    topic: Topic
    #: Partitions that get a new target by this write.
    begun: tuple[int, ...] = ()

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Apply the written node to the image; reassignments that it no longer names are over."""
        topic, image, agenda = self.topic, settlement.image, settlement.agenda
        if isinstance(outcome, Conflict):
            settlement.notices.add(TopicOutdated(topic.name))
            return
        before = image.topics[topic.name].moves
        since = {
            partition: replace(topic.moves[partition], since_zxid=outcome.mzxid)
            for partition in self.begun
            if partition in topic.moves
        }
        settlement.apply(AssignmentsWritten(replace(topic, moves={**topic.moves, **since})))
        for partition, move in since.items():
            settlement.notices.add(
                ReassignmentBegun(
                    TopicPartition(topic.name, partition),
                    topic.topic_id,
                    records.target_of(topic.assignments[partition], move),
                    move,
                )
            )
        for partition in self.begun:
            agenda.reassignments[TopicPartition(topic.name, partition)] = None
        ended = [partition for partition in before if partition not in topic.moves]
        agenda.look_at_requests(image)
        for partition in ended:
            settlement.notices.add(
                ReassignmentEnded(
                    TopicPartition(topic.name, partition),
                    topic.assignments[partition],
                    topic.topic_id,
                    outcome.mzxid,
                )
            )


@dataclass(slots=True)
class TopicNode:
    """A topic's node as the decision under construction will write it."""

    topic: Topic
    write: int
    assignments: dict[int, tuple[int, ...]]
    moves: dict[int, Move]
    begun: dict[int, None]
    #: Number of replica lists in the node.
    lists: int
    #: Number of broker ids in all replica lists of the node together.
    ids: int

    def topic_written(self) -> Topic:
        return replace(
            self.topic,
            assignments=dict(self.assignments),
            moves=dict(self.moves),
            version=self.topic.version + 1,
        )


class ReassignmentsDraft:
    """The changes that one decision makes to reassignments: those it begins, advances or ends."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._image = draft.image
        self._nodes: dict[str, TopicNode] = {}

    def close(self) -> None:
        """Complete the writes of topics' nodes; the caller calls this at the end of a decision."""
        writes = self.draft.decision.writes
        for node in self._nodes.values():
            writes[node.write] = WriteAssignments(node.topic_written(), tuple(node.begun))

    def is_free(self, topic_partition: TopicPartition) -> bool:
        """Return whether a partition is free to be changed by a reassignment.

        A partition is free if this decision has not yet changed the partition or the number of its
        topic's partitions.
        """
        return (
            self.draft.written(topic_partition) is None
            and topic_partition.topic not in self.draft.resized
        )

    def begun(self, topic_partition: TopicPartition) -> Move | None:
        """Return the reassignment of a partition as this decision leaves it in the topic's node."""
        return self._nodes[topic_partition.topic].moves.get(topic_partition.partition)

    def begin(
        self, topic_partition: TopicPartition, target: tuple[int, ...], throttle: int | None = None
    ) -> int | None:
        """Begin to move a partition to `target`; return the index of the write.

        A `throttle` in bytes a second applies to the reassignment, 0 removes the throttle, and None
        keeps the throttle of the present reassignment (R4). Returns None if the partition already
        has this target, reached or not, with this throttle. Raises KafkaError if the topic's node
        has no room.
        """
        image = self._image
        move = image.move(topic_partition)
        assigned = image.assigned(topic_partition)
        present = 0 if move is None else move.throttle
        wanted = present if throttle is None else throttle
        if target == (assigned if move is None else records.target_of(assigned, move)) and (
            move is None
            or wanted == present
            or not move.adding
            or image.is_completing(topic_partition)
        ):
            return None
        full, begun = transitions.toward(target, assigned, move, wanted)
        if begun and begun.adding and self._is_guarded(topic_partition, move, assigned):
            begun = replace(begun, is_guarded=True)
        node = self._node(topic_partition.topic, begun)
        partition = topic_partition.partition
        node.assignments[partition] = full
        if begun is None:
            node.moves.pop(partition, None)
            self.draft.order(SendMetadata((topic_partition,)))
            return node.write
        node.moves[partition] = begun
        node.begun[partition] = None
        state = image.states.get(topic_partition)
        if state is not None and (present or not transitions.goes_back(full, begun)):
            published = self._without_unwanted(topic_partition, full, begun)
            if published is None:
                epoch = self.draft.settings.controller_epoch
                published = transitions.under_next_epoch(state, epoch)
            new_replicas = tuple(replica for replica in full if replica not in assigned)
            self._publish(topic_partition, state, published, new_replicas)
        return node.write

    def advance(self, topic_partition: TopicPartition) -> None:
        """Take the next step of a partition's reassignment, if the step is due.

        The step publishes a state with only the target replicas, or ends the reassignment.
        """
        image = self._image
        move = image.move(topic_partition)
        state = image.states.get(topic_partition)
        if (
            move is None
            or state is None
            or image.is_deleting(topic_partition.topic)
            or not self.is_free(topic_partition)
        ):
            return
        node = self._nodes.get(topic_partition.topic)
        if node is not None and node.moves.get(topic_partition.partition) is not move:
            return  # this decision has already changed the target
        full = image.assigned(topic_partition)
        target = records.target_of(full, move)
        if image.is_completing(topic_partition):
            if image.has_left(topic_partition):
                self._end(topic_partition, target)
            return
        brokers, absent = image.brokers, image.absent(topic_partition)
        controller_epoch = self.draft.settings.controller_epoch
        goes_back = transitions.goes_back(full, move)
        if goes_back:
            minimum = self.draft.minimum_of(topic_partition.topic, target)
            done = transitions.rolled_back(
                state, target, brokers, absent, minimum, controller_epoch
            )
        else:
            done = transitions.completed(state, target, brokers, absent, controller_epoch)
        if done is not None:
            self.draft.write_state(
                WritePartitionState(topic_partition, done, state.partition_epoch)
            )
            return
        dropped = None if goes_back else self._without_unwanted(topic_partition, full, move)
        if dropped is not None:
            self._publish(topic_partition, state, dropped)
            return
        if goes_back:
            # The cancellation cannot be completed yet, and sent no roles when it began. Superfluous
            # replicas are therefore commanded now to stop copying.
            for order in pausing.roles_of_idle(topic_partition, move.removing, image):
                self.draft.order(order)
        self._look_at_pause(topic_partition, records.before(full, move))

    def _publish(
        self,
        topic_partition: TopicPartition,
        before: PartitionState,
        after: PartitionState,
        new_replicas: tuple[int, ...] = (),
    ) -> None:
        """Write a partition's next state; MOVED is the cause for members that leave the ISR."""
        left = [member for member in before.isr if member not in after.isr]
        self.draft.write_state(
            WritePartitionState(
                topic_partition,
                after,
                before.partition_epoch,
                new_replicas=new_replicas,
                shrinks=tuple((member, ShrinkCause.MOVED) for member in left),
            )
        )

    def _without_unwanted(
        self, topic_partition: TopicPartition, full: tuple[int, ...], move: Move
    ) -> PartitionState | None:
        """Return the state without ISR members that only an earlier target added (R10).

        Returns None if the ISR has no such member.

        `full` are all assigned replicas, including the replicas that the reassignment removes.
        """
        image = self._image
        return transitions.without_unwanted(
            image.states[topic_partition],
            full,
            move,
            image.brokers,
            image.absent(topic_partition),
            self.draft.minimum_of(topic_partition.topic, records.before(full, move)),
            self.draft.settings.controller_epoch,
        )

    def _is_guarded(
        self, topic_partition: TopicPartition, move: Move | None, assigned: tuple[int, ...]
    ) -> bool:
        """Return whether the reassignment that begins now may pause later."""
        if move is not None:
            return move.is_guarded
        minimum = self.draft.minimum_of(topic_partition.topic, assigned)
        return self.draft.settings.pauses_reassignments and pausing.is_guarded(
            self._image.states.get(topic_partition), minimum
        )

    def _look_at_pause(self, topic_partition: TopicPartition, original: tuple[int, ...]) -> None:
        minimum = self.draft.minimum_of(topic_partition.topic, original)
        reason = ""
        if self.draft.settings.pauses_reassignments:
            reason = pausing.reason_to_pause(topic_partition, self._image, minimum)
        if bool(reason) != (topic_partition in self._image.paused):
            self.draft.notice(pausing.MovePaused(topic_partition, reason))

    def _end(self, topic_partition: TopicPartition, target: tuple[int, ...]) -> None:
        """End a reassignment: write the topic's node without the removed replicas (V52)."""
        node = self._node(topic_partition.topic, None)
        node.assignments[topic_partition.partition] = target
        node.moves.pop(topic_partition.partition, None)
        self.draft.order(SendMetadata((topic_partition,)))

    def _node(self, name: str, begun: Move | None) -> TopicNode:
        """Return a topic's node. Raises KafkaError if the node has no room for `begun`."""
        node = self._nodes.get(name)
        if node is None:
            topic = self._image.topics[name]
            under_way = topic.moves.values()
            node = TopicNode(topic, -1, dict(topic.assignments), dict(topic.moves), {}, 0, 0)
            node.lists = len(topic.assignments) + 4 * len(under_way)
            node.ids = sum(map(len, topic.assignments.values()))
            node.ids += sum(len(m.adding) + len(m.removing) + len(m.original) for m in under_way)
        if begun is not None:
            lists = node.lists + 4
            # The topic's node names an added replica twice: among the added replicas, and in the
            # assignment.
            ids = node.ids + 2 * len(begun.adding) + len(begun.removing) + len(begun.original)
            assignments.check_size(lists, ids, max(self._image.brokers, default=0))
            node.lists, node.ids = lists, ids
        if node.write < 0:
            node.write = self.draft.add(WriteAssignments(node.topic))
            self.draft.reassigned[name] = None
            self._nodes[name] = node
        return node


def settle(settlement: Settlement) -> None:
    """Command brokers to delete the replicas that are no longer assigned after a reassignment.

    A replica on a dead broker becomes a stray when the broker returns (V52, V45).
    """
    image, agenda = settlement.image, settlement.agenda
    looked_at, agenda.departures = agenda.departures, {}
    for topic_partition in looked_at:
        if image.is_deleting(topic_partition.topic) or not image.is_completing(topic_partition):
            continue
        brokers = departing(topic_partition, image)
        leader_epoch = image.states[topic_partition].leader_epoch
        settlement.apply(LeavingCommanded(topic_partition, brokers))
        if brokers:
            order = DeleteReassignedReplicas(topic_partition, brokers, leader_epoch)
            settlement.orders.append(order)
            # No decision is necessary before the commanded brokers have acknowledged the deletion
            # or are gone.
            agenda.reassignments.pop(topic_partition, None)
        else:
            agenda.reassignments[topic_partition] = None


def departing(topic_partition: TopicPartition, image: Image) -> tuple[int, ...]:
    """Return the live brokers whose replicas a reassignment has removed."""
    stay = image.replicas(topic_partition)
    return tuple(
        replica
        for replica in image.assigned(topic_partition)
        if replica not in stay and replica in image.brokers
    )


def sweep(image: Image, agenda: Agenda) -> None:
    """Let the next decision check every reassignment (V50)."""
    agenda.reassignments.update(image.moving)
    agenda.look_at_requests(image)
