"""Records that make up the image: topics, reassignments, deletions and removals.

The records are values without behaviour of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.types import PartitionState, ReassignmentEntry, TopicId, TopicPartition

Replicas = tuple[int, ...]


class Presence(Enum):
    """A live broker's report about its replica of a partition (D3, D4)."""

    HERE = "here"
    #: The broker has no replica, and all its log directories are good: the replica's records are
    #: lost.
    LOST = "lost"
    #: The replica's log directory has failed, or takes no new replica, so the replica serves no
    #: records for now.
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Move:
    """A reassignment of one partition that is under way.

    The partition's assignment names the replicas to add as well as the replicas to remove.
    """

    #: Replicas that were not assigned when the reassignment began.
    adding: Replicas
    #: Replicas that are not in the target; a replica that an earlier target added may be among
    #: them.
    removing: Replicas
    #: The replicas when the reassignment began, preferred leader first; empty if not recorded (R1,
    #: R6).
    original: Replicas
    #: Transaction that wrote this target into the topic's node. If the controller has read the node
    #: since, it is the transaction of the node's last write. If the partition's state is older than
    #: this transaction, perhaps no command has sent the target to the replicas (V41).
    since_zxid: int = 0
    #: Bytes a second that brokers may copy for the reassignment, 0 for no throttle of its own (R4).
    throttle: int = 0
    #: Whether the reassignment may pause while too few replicas are in sync, because enough were in
    #: sync when it began.
    is_guarded: bool = False


def target_of(replicas: Sequence[int], move: Move) -> Replicas:
    """Return the target of a reassignment, preferred leader first."""
    removing = move.removing
    return tuple([replica for replica in replicas if replica not in removing])


def is_completing(state: PartitionState | None, replicas: Sequence[int], move: Move) -> bool:
    """Return whether published state has only the target replicas of a reassignment (V52).

    Then only the deletion of the removed replicas and the write of the topic's node remain. A
    removed replica must no longer be in the ISR.
    """
    if state is None or not state.reassigned_to:
        return False
    reached = state.reassigned_to
    return reached == target_of(replicas, move) and set(reached).issuperset(state.isr)


def before(replicas: Replicas, move: Move) -> Replicas:
    """Return the original replicas of a reassignment; derive them if not recorded (R1)."""
    return move.original or tuple(replica for replica in replicas if replica not in move.adding)


def unwanted(replicas: Replicas, move: Move) -> Replicas:
    """Return replicas that an earlier target or a cancelled reassignment added (R10)."""
    original = before(replicas, move)
    return tuple([each for each in move.removing if each not in original])


def idle(replicas: Replicas, move: Move, state: PartitionState, is_paused: bool) -> Replicas:
    """Return replicas that do not copy: their reassignment pauses, or they are superfluous (R10).

    A cancellation or another target makes added replicas superfluous; they are deleted when the
    move ends. ISR members continue to copy, even while the move pauses. Superfluous replicas that
    are eligible also continue to copy, because few other replicas may have the committed records.
    While the move pauses, even eligible added replicas stop copying; they keep their records.
    """
    out = (*state.isr, *state.elr)
    found = dict.fromkeys(each for each in unwanted(replicas, move) if each not in out)
    if is_paused:
        found.update(dict.fromkeys(each for each in move.adding if each not in state.isr))
    return tuple(found)


class LogEnd(NamedTuple):
    """A replica's reported log end; a log with a greater (epoch, end) has more records (E6)."""

    #: Leader epoch of the last record; -1 for a log without records.
    leader_epoch: int
    end_offset: int
    #: Start of the log; every record below the start was once committed.
    start_offset: int = -1


#: The broker has no copy of the log, and counts as a member that lost its data.
NO_LOG = LogEnd(-1, -1)
#: The broker cannot read its copy of the log now, and counts as a member that is not registered.
UNREADABLE_LOG = LogEnd(-2, -1)


@dataclass(slots=True)
class Recovery:
    """Progress of a partition's recovery by proof (E6)."""

    #: Number that distinguishes the recoveries of one controller term.
    serial: int = 0
    #: Whether leader.recovery.wait.ms is over.
    is_due: bool = False
    #: Brokers that were asked for their log ends and have not responded.
    asked: dict[int, None] = field(default_factory=dict)
    #: Log ends by broker, reported under the present registrations.
    logs: dict[int, LogEnd] = field(default_factory=dict)

    def copy(self) -> Recovery:
        """Return an independent copy."""
        return Recovery(self.serial, self.is_due, dict(self.asked), dict(self.logs))

    def key(self) -> tuple[object, ...]:
        """Return a hashable form for the model checker; equal forms mean equal next decisions."""
        return (self.is_due, tuple(self.asked), tuple(sorted(self.logs.items())))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic node (V5): the topic's id, and each partition's replicas, preferred leader first."""

    name: str
    topic_id: TopicId
    assignments: Mapping[int, tuple[int, ...]]
    #: The topic's own unclean.leader.election.enable; None if the topic has none.
    unclean: bool | None = None
    #: Version of the topic node; writes that add partitions require this version.
    version: int = 0
    #: Reassignments under way, by partition.
    moves: Mapping[int, Move] = field(default_factory=dict)
    #: The topic's own min.insync.replicas; None if the topic has none.
    min_insync_replicas: int | None = None
    #: Partitions of the topic, ascending; computed once, because every check of the topic needs
    #: them.
    partitions: tuple[TopicPartition, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        made = tuple(TopicPartition(self.name, number) for number in sorted(self.assignments))
        object.__setattr__(self, "partitions", made)

    @property
    def is_reassigning(self) -> bool:
        """Whether the topic's node names replicas that a reassignment adds or removes."""
        return bool(self.moves)


@dataclass(frozen=True, slots=True)
class RequestedReassignments:
    """The entries of a node with requested reassignments, at one version of the node.

    The node is `/admin/reassign_partitions`, or the node of the queue of reassignments.
    """

    version: int
    entries: Mapping[TopicPartition, ReassignmentEntry]


@dataclass(frozen=True, slots=True)
class RequestNode:
    """A stored request for reassignments that the controller has not accepted yet (R12, R20)."""

    path: str
    assignments: Mapping[TopicPartition, Replicas]


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A request that was accepted for one partition: `/admin/reassignments/T/P` (R12)."""

    replicas: Replicas
    #: The transaction that created the request's node; its id identifies the reassignment.
    request_id: int


@dataclass(frozen=True, slots=True)
class LastProducerId:
    """The last allocated producer id (-1 before the first), and the version of the node that stores
    it (-1 if the node does not exist).
    """

    last_id: int
    version: int


@dataclass(slots=True)
class Deletion:
    """The deletion of a topic (V22)."""

    #: Whether the brokers have been commanded to delete the replicas.
    commanded: bool = False
    #: Replicas on live brokers that have not acknowledged the deletion, by broker.
    waiting: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether no live broker holds a replica of the topic, so that its nodes can be removed."""
        return self.commanded and not self.waiting


@dataclass(slots=True)
class Removal:
    """The removal of partitions of one topic (V71)."""

    #: By partition number, whether every consumer group must have read the partition before its
    #: removal.
    requested: dict[int, bool] = field(default_factory=dict)
    #: Partitions that an edit removed from the topic's node, so that their removal can no longer be
    #: withdrawn.
    by_edit: dict[int, None] = field(default_factory=dict)
    #: Partitions whose leaders were commanded to accept no more records. Consumers can still read
    #: these partitions.
    closed: dict[int, None] = field(default_factory=dict)
    #: Partitions that every consumer group has read to the end.
    drained: dict[int, None] = field(default_factory=dict)
    #: Partitions whose brokers have been sent the command to delete them.
    commanded: dict[int, None] = field(default_factory=dict)
    #: Replicas on live brokers that have not acknowledged the deletion, by broker.
    waiting: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether all live brokers have deleted their replicas of the removed partitions."""
        return bool(self.commanded) and not self.waiting

    def forget(self, partition: int) -> None:
        """Drop a partition whose removal is done."""
        for kept in (self.requested, self.by_edit, self.closed, self.drained, self.commanded):
            kept.pop(partition, None)

    def copy(self) -> Removal:
        """Return an independent copy."""
        return Removal(
            dict(self.requested),
            dict(self.by_edit),
            dict(self.closed),
            dict(self.drained),
            dict(self.commanded),
            {broker_id: dict(waiting) for broker_id, waiting in self.waiting.items()},
        )

    def key(self) -> tuple[object, ...]:
        """Return a hashable form for the model checker; equal forms mean equal next decisions."""
        return (
            tuple(sorted(self.requested.items())),
            tuple(sorted(self.by_edit)),
            tuple(sorted(self.closed)),
            tuple(sorted(self.drained)),
            tuple(sorted(self.commanded)),
            tuple(
                (broker_id, tuple(sorted(self.waiting[broker_id])))
                for broker_id in sorted(self.waiting)
            ),
        )
