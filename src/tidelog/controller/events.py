"""What reaches the controller: readings of the store, answers of brokers, requests.

Events queue while a decision is in flight and are decided together afterwards (DESIGN.md, rule 6).
A request carries a ticket, under which its answer is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.controller.changes import (
    ProducerIdsFound,
    ReassignmentsFound,
    TopicFound,
    TopicUnreadable,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerInfo, PartitionState, TopicId, TopicPartition
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.wire.messages.alter_partition import AlterPartitionRequest
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest
from tidelog.wire.messages.create_topics import CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest
from tidelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tidelog.wire.messages.remove_partitions import RemovePartitionsRequest


@dataclass(frozen=True, slots=True)
class BrokersRead:
    """All registrations, as they are now (V10)."""

    brokers: Mapping[int, BrokerInfo]


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """The names of all topics, and the nodes of those that the image does not hold."""

    names: Sequence[str]
    found: Sequence[TopicFound | TopicUnreadable]


@dataclass(frozen=True, slots=True)
class DeletionsRead:
    """The names below `/admin/delete_topics` (V8)."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class RemovalsRead:
    """What stands below `/admin/partitions_remove`: by topic and number, whether to drain (V7)."""

    wanted: Mapping[str, Mapping[int, bool]]


@dataclass(frozen=True, slots=True)
class AdditionsRead:
    """What stands below `/admin/partitions_add`: by topic and number, the replicas, none for those
    that the controller chooses (V7). A seed for their placement comes along."""

    wanted: Mapping[str, Mapping[int, Sequence[int]]]
    seed: int


@dataclass(frozen=True, slots=True)
class RequestsUnreadable:
    """Requests to add or to remove partitions that say nothing that can be done."""

    topic_partitions: Sequence[TopicPartition]
    is_removal: bool


@dataclass(frozen=True, slots=True)
class FormerRead:
    """State nodes of partitions that their topics do not have, None where there is none (V71)."""

    states: Mapping[TopicPartition, PartitionState | None]


@dataclass(frozen=True, slots=True)
class StatesRead:
    """State nodes that could not be read, read again: the state, or why it still cannot be."""

    found: Mapping[TopicPartition, PartitionState | str]


@dataclass(frozen=True, slots=True)
class DrainRead:
    """Partitions that every consumer group with offsets in them has read to the end (V71)."""

    topic_partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerIdsRead:
    """`/latest_producer_id_block`, None where it cannot be read."""

    found: ProducerIdsFound | None


@dataclass(frozen=True, slots=True)
class UncleanRead:
    """unclean.leader.election.enable as it is now: of topics, None where they say nothing, and of
    the cluster, None where it was not looked at."""

    topics: Mapping[str, bool | None]
    cluster: bool | None = None


@dataclass(frozen=True, slots=True)
class PreferredElectionRead:
    """`/admin/preferred_replica_election` exists and names these (V8)."""

    topic_partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ReassignmentsRead:
    """`/admin/reassign_partitions` as it is now, None where it is not there (R1)."""

    found: ReassignmentsFound | None


@dataclass(frozen=True, slots=True)
class SweepDue:
    """It is time to look at every reassignment again, whatever happened (V50)."""


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """It is time to look whether preferred replicas lead (V46)."""

    #: leader.imbalance.per.broker.percentage
    percentage: int


@dataclass(frozen=True, slots=True)
class RebalanceStepDue:
    """It is time to give the next leaderships back that were found due (V46)."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """A broker's answer to LeaderAndIsr, per partition (D3)."""

    broker_id: int
    broker_epoch: int
    outcomes: Sequence[tuple[TopicPartition, ErrorCode]]


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered:
    """A broker's answer to StopReplica: these are stopped, or never will be (V22, V52)."""

    broker_id: int
    broker_epoch: int
    topic_partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class CommandsDropped:
    """So much waited for a broker that part of it was thrown away (V81), or it has got a replica
    back (V35): tell it everything."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AlterPartitionAsked:
    """A leader asks for new ISRs (A1)."""

    ticket: int
    version: int
    request: AlterPartitionRequest


@dataclass(frozen=True, slots=True)
class CreateTopicsAsked:
    """Fresh topic ids, one for each topic asked for, and a seed for their placement come along."""

    ticket: int
    request: CreateTopicsRequest
    topic_ids: Sequence[TopicId]
    seed: int


@dataclass(frozen=True, slots=True)
class CreatePartitionsAsked:
    """A client asks for more partitions; a seed for their placement comes along."""

    ticket: int
    request: CreatePartitionsRequest
    seed: int


@dataclass(frozen=True, slots=True)
class RemovePartitionsAsked:
    """A client asks for the highest partitions of topics to be removed."""

    ticket: int
    request: RemovePartitionsRequest


@dataclass(frozen=True, slots=True)
class ElectLeadersAsked:
    """A client asks for preferred or for unclean leaders."""

    ticket: int
    request: ElectLeadersRequest


@dataclass(frozen=True, slots=True)
class ReassignmentsAsked:
    """A client asks for partitions to be moved, or to be left where they were (KIP-455)."""

    ticket: int
    request: AlterPartitionReassignmentsRequest


@dataclass(frozen=True, slots=True)
class ReassignmentsListAsked:
    """A client asks which partitions are being moved (KIP-455)."""

    ticket: int
    request: ListPartitionReassignmentsRequest


@dataclass(frozen=True, slots=True)
class DeleteTopicsAsked:
    """A client asks for topics to be deleted."""

    ticket: int
    request: DeleteTopicsRequest


@dataclass(frozen=True, slots=True)
class ProducerIdsAsked:
    """A broker asks for a block of producer ids (G3)."""

    ticket: int
    request: AllocateProducerIdsRequest


@dataclass(frozen=True, slots=True)
class ControlledShutdownAsked:
    """A broker that is about to stop asks to be relieved of what it leads (V43)."""

    ticket: int
    request: ControlledShutdownRequest


Reading = (
    BrokersRead
    | TopicsRead
    | DeletionsRead
    | RemovalsRead
    | AdditionsRead
    | RequestsUnreadable
    | FormerRead
    | StatesRead
    | DrainRead
    | ProducerIdsRead
    | UncleanRead
    | PreferredElectionRead
    | ReassignmentsRead
    | SweepDue
    | RebalanceDue
    | RebalanceStepDue
    | LeaderAndIsrAnswered
    | StopReplicaAnswered
    | CommandsDropped
)
Asked = (
    AlterPartitionAsked
    | CreateTopicsAsked
    | CreatePartitionsAsked
    | RemovePartitionsAsked
    | ElectLeadersAsked
    | ControlledShutdownAsked
    | ReassignmentsAsked
    | ReassignmentsListAsked
    | DeleteTopicsAsked
    | ProducerIdsAsked
)
Event = Reading | Asked
