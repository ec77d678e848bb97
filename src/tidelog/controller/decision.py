"""What a decision consists of: writes to make durable, answers that wait for them, what to tell.

The writer turns each write into operations on the store and reports an outcome for each, in order:
`Written`, or `Conflict` with what the node holds instead. Answers are finished from the outcomes,
so that nobody hears of a state that is not durable (V2, A1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.controller.events import ProducerIdsAsked
from tidelog.controller.growth import Growth
from tidelog.controller.image import ProducerIdsFound, Topic
from tidelog.controller.shutdowns import HandOver, ShutdownAnswer
from tidelog.controller.topics import NewTopic
from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState, ReassignmentEntry, TopicId, TopicPartition
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from tidelog.wire.messages.alter_partition import (
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from tidelog.wire.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

#: Expected partition epoch of a partition without a state node: it is to be made.
NO_STATE = -1
#: `config_source` of a value set for the topic itself (Kafka's DYNAMIC_TOPIC_CONFIG).
_TOPIC_CONFIG = 1


@dataclass(frozen=True, slots=True)
class WritePartitionState:
    """Publish a state where the node's version is `expected_epoch` (NO_STATE: make the node)."""

    topic_partition: TopicPartition
    state: PartitionState
    expected_epoch: int
    #: Brokers may make the replica: it is this decision that brings it into being (D3).
    is_new: bool = False
    #: The change comes from the leader, who hears of it by its answer.
    asked_by_leader: bool = False
    #: Only these may be made, where the partition is there already: a reassignment adds them.
    new_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make the nodes of a topic, its configuration and its partitions' first states."""

    made: NewTopic


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Give a topic's node more partitions, and make their first states."""

    growth: Growth


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Write the node of a topic whose partitions begin or end to be reassigned."""

    topic: Topic
    #: Partitions that have another target from here on.
    begun: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KeepReassignments:
    """Leave these in `/admin/reassign_partitions`, and remove it when nothing is left (R1)."""

    entries: Mapping[TopicPartition, ReassignmentEntry]
    expected_version: int


@dataclass(frozen=True, slots=True)
class ForgetPreferredElection:
    """Remove `/admin/preferred_replica_election`: what it asked for is decided."""


@dataclass(frozen=True, slots=True)
class QueueDeletion:
    """Make `/admin/delete_topics/T`."""

    name: str


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """Remove a deleted topic's subtree and configuration, its request last; `topic` None: its node
    could not be read."""

    name: str
    topic: Topic | None


@dataclass(frozen=True, slots=True)
class ForgetDeletion:
    """Remove a request to delete a topic that does not exist."""

    name: str


@dataclass(frozen=True, slots=True)
class TakeProducerIds:
    """Record that producer ids up to `last` are given out, `first` to `last` to `broker_id`."""

    broker_id: int
    first: int
    last: int
    expected_version: int


Write = (
    WritePartitionState
    | CreateTopic
    | AddPartitions
    | WriteAssignments
    | KeepReassignments
    | ForgetPreferredElection
    | QueueDeletion
    | RemoveTopic
    | ForgetDeletion
    | TakeProducerIds
)


@dataclass(frozen=True, slots=True)
class Written:
    """Durable; `mzxid` of the state node, by partition for a created topic."""

    mzxid: int = 0


@dataclass(frozen=True, slots=True)
class Conflict:
    """Not written: the node is not as expected. `state`: what a state node holds, None where it is
    gone or cannot be read (`reason`); `producer_ids` likewise."""

    state: PartitionState | None = None
    producer_ids: ProducerIdsFound | None = None
    reason: str = "the node has gone"


Outcome = Written | Conflict


@dataclass(slots=True)
class IsrResult:
    """Outcome for one partition of an AlterPartition request."""

    topic_id: TopicId
    partition: int
    error: ErrorCode
    state: PartitionState | None
    #: Index of the write that must succeed first, None where nothing is written.
    write: int | None


@dataclass(slots=True)
class AlterPartitionAnswer:
    """Answer to a leader; a conflict in the store is its INVALID_UPDATE_VERSION (A3)."""

    ticket: int
    error: ErrorCode = ErrorCode.NONE
    results: list[IsrResult] = field(default_factory=list)

    def message(self, outcomes: Sequence[Outcome]) -> AlterPartitionResponse:
        """The answer, given what became of the writes."""
        topics: dict[TopicId, ResponseTopicData] = {}
        for result in self.results:
            topic = topics.get(result.topic_id)
            if topic is None:
                topic = topics[result.topic_id] = ResponseTopicData(topic_id=result.topic_id)
            topic.partitions.append(self._partition(result, outcomes))
        return AlterPartitionResponse(error_code=self.error, topics=list(topics.values()))

    @staticmethod
    def _partition(result: IsrResult, outcomes: Sequence[Outcome]) -> ResponsePartitionData:
        error, state = result.error, result.state
        if result.write is not None and isinstance(outcomes[result.write], Conflict):
            error, state = ErrorCode.INVALID_UPDATE_VERSION, None
        if state is None:
            return ResponsePartitionData(partition_index=result.partition, error_code=error)
        return ResponsePartitionData(
            partition_index=result.partition,
            error_code=error,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            leader_recovery_state=state.leader_recovery_state,
            partition_epoch=state.partition_epoch,
        )


@dataclass(slots=True)
class CreationResult:
    """Outcome for one topic of a CreateTopics request: made, or refused."""

    name: str
    made: NewTopic | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    #: Index of the write that must succeed first, None where nothing is written.
    write: int | None = None


@dataclass(slots=True)
class CreateTopicsAnswer:
    """Answer to CreateTopics."""

    ticket: int
    results: list[CreationResult] = field(default_factory=list)

    def message(self, outcomes: Sequence[Outcome]) -> CreateTopicsResponse:
        """The answer, given what became of the writes."""
        return CreateTopicsResponse(
            topics=[self._topic(result, outcomes) for result in self.results]
        )

    @staticmethod
    def _topic(result: CreationResult, outcomes: Sequence[Outcome]) -> CreatableTopicResult:
        if result.write is not None and isinstance(outcomes[result.write], Conflict):
            return CreatableTopicResult(
                name=result.name,
                error_code=ErrorCode.TOPIC_ALREADY_EXISTS,
                error_message=f"topic {result.name!r} was made by somebody else meanwhile",
            )
        if result.made is None:
            return CreatableTopicResult(
                name=result.name, error_code=result.error, error_message=result.message
            )
        made = result.made
        return CreatableTopicResult(
            name=result.name,
            topic_id=made.topic.topic_id if result.write is not None else bytes(16),
            num_partitions=len(made.topic.assignments),
            replication_factor=made.replication_factor,
            configs=[
                CreatableTopicConfigs(name=key, value=value, config_source=_TOPIC_CONFIG)
                for key, value in sorted(made.configs.items())
            ],
        )


@dataclass(slots=True)
class GrowthResult:
    """Outcome for one topic of a CreatePartitions request."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    #: Index of the write that must succeed first, None where nothing is written.
    write: int | None = None


@dataclass(slots=True)
class CreatePartitionsAnswer:
    """Answer to CreatePartitions."""

    ticket: int
    results: list[GrowthResult] = field(default_factory=list)

    def message(self, outcomes: Sequence[Outcome]) -> CreatePartitionsResponse:
        """The answer, given what became of the writes."""
        return CreatePartitionsResponse(
            results=[self._topic(result, outcomes) for result in self.results]
        )

    @staticmethod
    def _topic(result: GrowthResult, outcomes: Sequence[Outcome]) -> CreatePartitionsTopicResult:
        error, message = result.error, result.message
        if result.write is not None and isinstance(outcomes[result.write], Conflict):
            error = ErrorCode.INVALID_UPDATE_VERSION
            message = (
                f"topic {result.name!r} was changed by somebody else meanwhile: look at it, and"
                " ask again"
            )
        return CreatePartitionsTopicResult(result.name, error, message)


@dataclass(slots=True)
class ElectionResult:
    """Outcome for one partition of an ElectLeaders request."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    #: Index of the write that must succeed first, None where nothing is written.
    write: int | None = None


@dataclass(slots=True)
class ElectLeadersAnswer:
    """Answer to ElectLeaders; one for all partitions leaves out those that needed nothing."""

    ticket: int
    results: list[ElectionResult] = field(default_factory=list)

    def message(self, outcomes: Sequence[Outcome]) -> ElectLeadersResponse:
        """The answer, given what became of the writes."""
        topics: dict[str, ReplicaElectionResult] = {}
        for result in self.results:
            name, partition = result.topic_partition
            topic = topics.setdefault(name, ReplicaElectionResult(name, []))
            error, message = result.error, result.message
            if result.write is not None and isinstance(outcomes[result.write], Conflict):
                error = ErrorCode.INVALID_UPDATE_VERSION
                message = "the partition's state was changed meanwhile: ask again"
            topic.partition_result.append(PartitionResult(partition, error, message))
        return ElectLeadersResponse(replica_election_results=list(topics.values()))


@dataclass(slots=True)
class ReassignmentResult:
    """Outcome for one partition of an AlterPartitionReassignments request."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    #: Index of the write that must succeed first, None where nothing is written.
    write: int | None = None


@dataclass(slots=True)
class ReassignmentsAnswer:
    """Answer to AlterPartitionReassignments."""

    ticket: int
    allow_replication_factor_change: bool
    results: list[ReassignmentResult] = field(default_factory=list)

    def message(self, outcomes: Sequence[Outcome]) -> AlterPartitionReassignmentsResponse:
        """The answer, given what became of the writes."""
        topics: dict[str, ReassignableTopicResponse] = {}
        for result in self.results:
            name, partition = result.topic_partition
            topic = topics.setdefault(name, ReassignableTopicResponse(name, []))
            error, message = result.error, result.message
            if result.write is not None and isinstance(outcomes[result.write], Conflict):
                error = ErrorCode.INVALID_UPDATE_VERSION
                message = (
                    f"topic {name!r} was changed by somebody else meanwhile: look at it, and ask"
                    " again"
                )
            topic.partitions.append(ReassignablePartitionResponse(partition, error, message))
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=self.allow_replication_factor_change,
            responses=list(topics.values()),
        )


@dataclass(slots=True)
class DeletionResult:
    """Outcome for one topic of a DeleteTopics request."""

    name: str | None
    topic_id: TopicId
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(slots=True)
class DeleteTopicsAnswer:
    """Answer to DeleteTopics: given when the topics are gone, or when the client's time is over."""

    ticket: int
    results: list[DeletionResult] = field(default_factory=list)
    #: Topics whose nodes are not gone yet.
    waiting: dict[str, None] = field(default_factory=dict)

    def copy(self) -> DeleteTopicsAnswer:
        """An independent copy."""
        return DeleteTopicsAnswer(
            self.ticket, [replace(result) for result in self.results], dict(self.waiting)
        )

    def give_up(self) -> None:
        """The client's time is over; the deletion goes on."""
        for result in self.results:
            if result.name in self.waiting:
                result.error = ErrorCode.REQUEST_TIMED_OUT
                result.message = "the deletion goes on"
        self.waiting.clear()

    def message(self) -> DeleteTopicsResponse:
        """The answer as it stands."""
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=result.name,
                    topic_id=result.topic_id,
                    error_code=result.error,
                    error_message=result.message,
                )
                for result in self.results
            ]
        )


@dataclass(slots=True)
class ProducerIdsAnswer:
    """Answer to AllocateProducerIds; `asked` is decided again if the block cannot be written."""

    ticket: int
    asked: ProducerIdsAsked
    error: ErrorCode = ErrorCode.NONE
    first: int = 0
    count: int = 0

    def message(self) -> AllocateProducerIdsResponse:
        """The answer; given only when the block is durable."""
        return AllocateProducerIdsResponse(
            error_code=self.error, producer_id_start=self.first, producer_id_len=self.count
        )


@dataclass(frozen=True, slots=True)
class Retell:
    """Send a broker LeaderAndIsr for a partition that is not changed."""

    broker_id: int
    topic_partition: TopicPartition
    is_new: bool = False


@dataclass(slots=True)
class Decision:
    """All that follows from the events taken; nothing of it has happened yet."""

    writes: list[Write] = field(default_factory=list)
    isr_answers: list[AlterPartitionAnswer] = field(default_factory=list)
    creation_answers: list[CreateTopicsAnswer] = field(default_factory=list)
    growth_answers: list[CreatePartitionsAnswer] = field(default_factory=list)
    election_answers: list[ElectLeadersAnswer] = field(default_factory=list)
    reassignment_answers: list[ReassignmentsAnswer] = field(default_factory=list)
    #: (ticket, message) of requests that wait for nothing.
    ready_answers: list[tuple[int, Any]] = field(default_factory=list)
    #: Entries of `/admin/reassign_partitions` that cannot be, and why.
    refused: list[tuple[TopicPartition, str]] = field(default_factory=list)
    deletion_answers: list[DeleteTopicsAnswer] = field(default_factory=list)
    producer_id_answers: list[ProducerIdsAnswer] = field(default_factory=list)
    #: Index of the write that covers the blocks of `producer_id_answers`.
    producer_id_write: int | None = None
    #: Hand-overs of which this decides the last partitions, and requests for some that are refused.
    handed_over: list[HandOver] = field(default_factory=list)
    shutdown_answers: list[ShutdownAnswer] = field(default_factory=list)
    #: (broker, partition): followed by a broker that is leaving, which is to stop.
    stopped: list[tuple[int, TopicPartition]] = field(default_factory=list)
    retold: list[Retell] = field(default_factory=list)
    #: Partitions to create anew (D3: a creation that was cut short).
    remade: list[TopicPartition] = field(default_factory=list)
    #: Brokers that get a full command: new registrations, all of them for a new controller.
    full: tuple[int, ...] = ()
    brokers_changed: bool = False
    #: Partitions whose metadata changed without a write (replicas went offline or came back).
    shown: dict[TopicPartition, None] = field(default_factory=dict)
