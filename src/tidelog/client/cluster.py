"""The Metadata response as plain values: brokers, controller, topics, partitions, leaders.

Error codes of topics and partitions are data here: the caller decides whether to wait or give up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tidelog.client.steps import Address
from tidelog.client.versions import error_code
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A live broker, with its address on the listener that received the Metadata request."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """The address at which clients connect to this broker."""
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition; `leader` is -1 for none; `offline` replicas are on dead brokers or disks."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE

    @classmethod
    def from_response(cls, answer: MetadataResponsePartition) -> PartitionMetadata:
        """Return the metadata of one partition in a response."""
        return cls(
            partition=answer.partition_index,
            leader=answer.leader_id,
            leader_epoch=answer.leader_epoch,
            replicas=tuple(answer.replica_nodes),
            isr=tuple(answer.isr_nodes),
            offline=tuple(answer.offline_replicas),
            error=error_code(answer.error_code),
        )


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic; if the response has an error in place of the topic, only `error` is set."""

    name: str
    topic_id: TopicId = ZERO_TOPIC_ID
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    is_internal: bool = False
    error: ErrorCode = ErrorCode.NONE

    @classmethod
    def from_response(cls, answer: MetadataResponseTopic) -> TopicMetadata:
        """Return one topic of a response, with its partitions in ascending order."""
        partitions = [PartitionMetadata.from_response(each) for each in answer.partitions]
        partitions.sort(key=lambda each: each.partition)
        return cls(
            name=answer.name or "",
            topic_id=answer.topic_id,
            partitions={each.partition: each for each in partitions},
            is_internal=answer.is_internal,
            error=error_code(answer.error_code),
        )


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One broker's view of the cluster; `controller_id` -1 means that none is known."""

    brokers: dict[int, BrokerNode]
    controller_id: int
    cluster_id: str | None
    topics: dict[str, TopicMetadata]

    @classmethod
    def from_response(cls, response: MetadataResponse) -> ClusterMetadata:
        """Return the metadata in a response; brokers by id and topics by name, both ascending."""
        brokers = sorted(response.brokers, key=lambda each: each.node_id)
        topics = sorted(response.topics, key=lambda each: each.name or "")
        return cls(
            brokers={b.node_id: BrokerNode(b.node_id, b.host, b.port, b.rack) for b in brokers},
            controller_id=response.controller_id,
            cluster_id=response.cluster_id,
            topics={t.name or "": TopicMetadata.from_response(t) for t in topics},
        )

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """Return the partition; None if the topic or the partition does not exist."""
        topic = self.topics.get(tp.topic)
        return topic.partitions.get(tp.partition) if topic is not None else None

    def leader_of(self, tp: TopicPartition) -> BrokerNode | None:
        """Return the live leader; None if the partition has no live leader."""
        partition = self.partition(tp)
        if partition is None or partition.leader == NO_LEADER:
            return None
        return self.brokers.get(partition.leader)

    def all_partitions(self) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
        """Yield every partition of every topic, in order."""
        for topic in self.topics.values():
            for number, partition in topic.partitions.items():
                yield TopicPartition(topic.name, number), partition
