"""Publication of a partition's state: the write, and its effect on the image.

The write succeeds if the state node has the version that the image knows. After a conflict the
image takes over the node's content, and the next decision checks the partition again (V15).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.controller.cluster_events import StateChange
from tidelog.controller.image import Change, Image
from tidelog.controller.isr_shrinks import Shrinks, keep_causes, shrinks
from tidelog.controller.notices import UnmetRequest
from tidelog.controller.orders import SendFoundState, SendState
from tidelog.controller.records import Topic
from tidelog.controller.settlement import Settlement
from tidelog.controller.writes import Conflict, Outcome, Write
from tidelog.core import eligible_replicas
from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER, PartitionState, TopicPartition

#: The expected partition epoch of a write that creates the state node.
NO_STATE = -1


@dataclass(frozen=True, slots=True)
class StatePublished(Change):
    """Change: the controller has written, or has found, `state` in a partition's state node."""

    topic_partition: TopicPartition
    state: PartitionState
    #: The replicas that have just left the ISR, with the causes.
    shrinks: Shrinks = ()

    def apply(self, image: Image) -> None:
        """Set the partition's state, unless the topic is gone."""
        topic_partition, state = self.topic_partition, self.state
        if topic_partition.topic in image.topics:
            image.states[topic_partition] = image.as_far_as_proven(topic_partition, state)
            image.unreadable_states.pop(topic_partition, None)
            image.former.pop(topic_partition, None)
            keep_causes(image, topic_partition, state.isr, self.shrinks)
            if state.leader != NO_LEADER:
                image.recoveries.pop(topic_partition, None)
                image.waits.pop(topic_partition, None)


@dataclass(frozen=True, slots=True)
class StateUnreadable(Change):
    """A partition's state node is malformed, so the controller leaves the partition unchanged."""

    topic_partition: TopicPartition
    reason: str

    def apply(self, image: Image) -> None:
        """Drop the partition's state, and record why it cannot be read."""
        image.states.pop(self.topic_partition, None)
        image.presences.pop(self.topic_partition, None)
        image.recoveries.pop(self.topic_partition, None)
        image.unreadable_states[self.topic_partition] = self.reason


@dataclass(frozen=True, slots=True)
class ReplicasRemade(Change):
    """Brokers are commanded to create a partition's replicas.

    From now on the replicas no longer count as missing (D3).
    """

    topic_partition: TopicPartition

    def apply(self, image: Image) -> None:
        """Drop the reports of missing replicas of the partition."""
        image.presences.pop(self.topic_partition, None)


@dataclass(frozen=True, slots=True)
class WritePartitionState(Write):
    """Publish a state if the node has version `expected_epoch`; NO_STATE creates the node."""

    topic_partition: TopicPartition
    state: PartitionState
    expected_epoch: int
    #: Whether brokers may create the replica, because this decision creates the partition (D3).
    is_new: bool = False
    #: Whether the leader proposed the change, so that the AlterPartition response has the result.
    asked_by_leader: bool = False
    #: Replicas that a reassignment adds to an existing partition; only their brokers may create a
    #: replica.
    new_replicas: tuple[int, ...] = ()
    #: Causes that the leader or a leaving broker reported for removed members, by replica.
    shrinks: Shrinks = ()

    def __post_init__(self) -> None:
        # The partition epoch is the version of the state node (V14).
        assert self.state.partition_epoch == self.expected_epoch + 1, f"not the next: {self}"

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Apply the content of the state node after the write or the conflict."""
        if isinstance(outcome, Conflict):
            self._found(outcome, settlement)
        else:
            self._published(outcome.mzxid, settlement)
        if self.topic_partition in settlement.image.moving:
            settlement.agenda.look_at_departures((self.topic_partition,), settlement.image)

    def _published(self, mzxid: int, settlement: Settlement) -> None:
        image, topic_partition = settlement.image, self.topic_partition
        before = image.states.get(topic_partition)
        left = shrinks(
            before,
            self.state,
            image.assigned(topic_partition),
            image.brokers,
            ended=image.ended,
            absent=image.absent(topic_partition),
            offline=image.offline(topic_partition),
            reported=dict(self.shrinks),
        )
        settlement.apply(StatePublished(topic_partition, self.state.written_by(mzxid), left))
        if self.is_new:
            settlement.apply(ReplicasRemade(topic_partition))
        has_roles = not self.asked_by_leader
        settlement.orders.append(
            SendState(topic_partition, self.is_new, self.new_replicas, has_roles)
        )
        topic_id = image.topics[topic_partition.topic].topic_id
        settlement.notices.add(
            StateChange(topic_partition, topic_id, before, self.state, self.asked_by_leader, left)
        )

    def _found(self, conflict: Conflict, settlement: Settlement) -> None:
        image, topic_partition = settlement.image, self.topic_partition
        if conflict.state is not None:
            assigned = image.assigned(topic_partition)
            report = strangers_reported(topic_partition, conflict.state, assigned)
            if report:
                settlement.notices.add(UnmetRequest(report))
            found = eligible_replicas.without_strangers(conflict.state, assigned)
            settlement.apply(StatePublished(topic_partition, found))
            settlement.agenda.look_at((topic_partition,))
        else:
            before = image.states.get(topic_partition)
            if before is not None:
                settlement.notices.add(UnmetRequest(last_known(topic_partition, before)))
            settlement.apply(StateUnreadable(topic_partition, conflict.reason))
        settlement.orders.append(SendFoundState(topic_partition))


def last_known(topic_partition: TopicPartition, state: PartitionState) -> str:
    """Return a report of a partition that stays unchanged, with its last known state."""
    return (
        f"partition {topic_partition} is left alone until its state node is repaired: it was led by"
        f" {state.leader} under leader epoch {state.leader_epoch}, ISR {list(state.isr)}; another"
        f" state than that needs a leader epoch of at least {state.leader_epoch + 1}"
    )


def strangers_reported(
    topic_partition: TopicPartition, state: PartitionState, assigned: Sequence[int]
) -> str:
    """Return a report of eligible replicas outside the assignment, or "" without any."""
    strangers = eligible_replicas.strangers(state, assigned)
    if not strangers:
        return ""
    return (
        f"partition {topic_partition}: its state node names eligible leader replicas (elr)"
        f" {list(strangers)}, which are not among its replicas {list(assigned)}; they are ignored,"
        " and the next write of the node drops them"
    )


def first_states(states: Mapping[int, PartitionState], mzxid: int) -> dict[int, PartitionState]:
    """Return the first states of partitions, as written by transaction `mzxid`."""
    return {partition: state.written_by(mzxid) for partition, state in states.items()}


def send_first_states(
    topic: Topic, states: Mapping[int, PartitionState], settlement: Settlement
) -> None:
    """Command brokers to create the replicas of new partitions."""
    for partition, state in states.items():
        topic_partition = TopicPartition(topic.name, partition)
        settlement.orders.append(SendState(topic_partition, is_new=True))
        settlement.notices.add(StateChange(topic_partition, topic.topic_id, None, state))
