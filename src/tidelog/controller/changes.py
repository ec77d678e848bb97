"""What the controller may learn: a topic, and each fact that changes what it knows of the cluster.

A fact was read from the store, written to it, or answered by a broker; `image` takes it over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.controller.moves import Move
from tidelog.core.types import (
    BrokerInfo,
    PartitionState,
    ReassignmentEntry,
    TopicId,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic node (V5): its id and the replicas of each partition, preferred leader first."""

    name: str
    topic_id: TopicId
    assignments: Mapping[int, tuple[int, ...]]
    #: The topic's own unclean.leader.election.enable, None where it has none.
    unclean: bool | None = None
    #: Version of the topic node: more partitions are written on the condition that it holds.
    version: int = 0
    #: Reassignments under way, by partition.
    moves: Mapping[int, Move] = field(default_factory=dict)
    #: Its partitions, ascending: made once, as every look at the topic goes through them.
    partitions: tuple[TopicPartition, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        made = tuple(TopicPartition(self.name, number) for number in sorted(self.assignments))
        object.__setattr__(self, "partitions", made)

    @property
    def is_reassigning(self) -> bool:
        """Whether the node names replicas that a reassignment brings or takes."""
        return bool(self.moves)


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The registrations as read from `/brokers/ids`."""

    brokers: Mapping[int, BrokerInfo]


@dataclass(frozen=True, slots=True)
class ShutdownBegun:
    """A live broker has asked for a controlled shutdown (V43): it leaves with its registration."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic exists, with the states that its partitions have so far."""

    topic: Topic
    states: Mapping[int, PartitionState]
    #: Partitions whose state nodes are not what they should be, and why; they are left alone.
    unreadable: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic that is known has more partitions; `states` are theirs (V70)."""

    topic: Topic
    states: Mapping[int, PartitionState]


@dataclass(frozen=True, slots=True)
class AssignmentsWritten:
    """The node of a topic that is known has other replicas, or other reassignments."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class LeavingCommanded:
    """Replicas that a reassignment takes away were told to go; these brokers have not answered."""

    topic_partition: TopicPartition
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentsFound:
    """`/admin/reassign_partitions` holds these entries in this version."""

    version: int
    entries: Mapping[TopicPartition, ReassignmentEntry]


@dataclass(frozen=True, slots=True)
class UncleanChanged:
    """A topic's own unclean.leader.election.enable is this now, None for none."""

    name: str
    unclean: bool | None


@dataclass(frozen=True, slots=True)
class TopicGone:
    """A topic is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class TopicUnreadable:
    """A topic's node is not what it should be; it is left alone."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class StateUnreadable:
    """A partition's state node is not what it should be; the partition is left alone."""

    topic_partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class StatePublished:
    """The state node of a partition holds `state`."""

    topic_partition: TopicPartition
    state: PartitionState


@dataclass(frozen=True, slots=True)
class DeletionRequested:
    """`/admin/delete_topics/T` exists."""

    name: str


@dataclass(frozen=True, slots=True)
class DeletionCommanded:
    """Brokers were told to delete; these replicas have not answered."""

    name: str
    replicas: Mapping[int, tuple[TopicPartition, ...]]


@dataclass(frozen=True, slots=True)
class ReplicasStopped:
    """A broker answered StopReplica for partitions of topics being deleted, or that it leaves."""

    broker_id: int
    topic_partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RemovalsRequested:
    """Partitions that somebody wants to be removed, all that there are: by topic and number,
    whether they are to be drained first (V7, V71)."""

    wanted: Mapping[str, Mapping[int, bool]]


@dataclass(frozen=True, slots=True)
class RemovalsAdded:
    """Requests to remove partitions of a topic, beside those that there are; `by_edit`: its node
    does not have them any more."""

    name: str
    wanted: Mapping[int, bool]
    by_edit: bool = False


@dataclass(frozen=True, slots=True)
class PartitionsClosed:
    """Leaders of these partitions, and of no others of the topic, were told to take no more
    records."""

    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionsDrained:
    """Every consumer group has read these partitions, which are about to be removed."""

    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemovalCommanded:
    """Brokers were told to delete partitions of a topic; these replicas have not answered."""

    name: str
    partitions: tuple[int, ...]
    replicas: Mapping[int, tuple[TopicPartition, ...]]


@dataclass(frozen=True, slots=True)
class PartitionsRemoved:
    """A topic has these partitions no more (V71); their states stay, as those of former lives."""

    topic: Topic
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FormerFound:
    """State nodes of partitions that a topic does not have (any more); None where there is none."""

    states: Mapping[TopicPartition, PartitionState | None]


@dataclass(frozen=True, slots=True)
class ReplicaAnswered:
    """A broker said whether it has a replica (D3), under its present registration."""

    topic_partition: TopicPartition
    broker_id: int
    present: bool


@dataclass(frozen=True, slots=True)
class ReplicasRemade:
    """Brokers are told to create the partition anew: earlier answers do not count (D3)."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class ProducerIdsFound:
    """The last producer id given out (-1: none yet) and the version of its node (-1: no node)."""

    last_id: int
    version: int


RemovalChange = (
    RemovalsRequested
    | RemovalsAdded
    | PartitionsClosed
    | PartitionsDrained
    | RemovalCommanded
    | PartitionsRemoved
    | FormerFound
)
Change = (
    BrokersChanged
    | ShutdownBegun
    | TopicFound
    | PartitionsAdded
    | AssignmentsWritten
    | LeavingCommanded
    | UncleanChanged
    | TopicGone
    | TopicUnreadable
    | StatePublished
    | StateUnreadable
    | DeletionRequested
    | DeletionCommanded
    | RemovalChange
    | ReplicasStopped
    | ReplicaAnswered
    | ReplicasRemade
    | ProducerIdsFound
)
