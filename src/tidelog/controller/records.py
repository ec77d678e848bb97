"""The records that the image is made of: topics, reassignments, and what is on its way out.

Values without behaviour of their own; which of them are published and which are not is the image's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.core.types import PartitionState, ReassignmentEntry, TopicId, TopicPartition

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A reassignment under way; what it adds and takes away is among the replicas assigned."""

    #: Replicas that were not there when it began.
    adding: Replicas
    #: Replicas that are not in its target; one that an earlier target added may be among them.
    removing: Replicas
    #: What was assigned when it began, in that order; empty where nobody recorded it (R1, R6).
    original: Replicas
    #: Transaction in which the topic's node was given its target, or was read at the latest: a
    #: state that is older says that the replicas may not have been told (V41).
    since_zxid: int = 0


def target_of(replicas: Sequence[int], move: Move) -> Replicas:
    """Where the partition is to be, preferred leader first."""
    return tuple(replica for replica in replicas if replica not in move.removing)


def is_completing(state: PartitionState | None, replicas: Sequence[int], move: Move) -> bool:
    """Whether the target is all there is already: only replicas that are out for good, and the
    topic's node, are left to be put right (V52). Whoever is in sync is not out."""
    return (
        state is not None
        and bool(state.reassigned_to)
        and state.reassigned_to == target_of(replicas, move)
        and all(member in state.reassigned_to for member in state.isr)
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
class RequestedReassignments:
    """`/admin/reassign_partitions` holds these entries in this version."""

    version: int
    entries: Mapping[TopicPartition, ReassignmentEntry]


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """The last producer id given out (-1: none yet) and the version of its node (-1: no node)."""

    last_id: int
    version: int


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

    def forget(self, partition: int) -> None:
        """The partition is removed."""
        for kept in (self.requested, self.by_edit, self.closed, self.drained, self.commanded):
            kept.pop(partition, None)

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
