"""The form of AlterPartition requests in each version, and the choice of the version.

Versions 0 and 1 identify topics by name. Versions 2 and 3 give topic ids, and version 3 also gives
the broker epoch of each member (KIP-497, KIP-704, KIP-841, KIP-903). With every
`inter.broker.protocol.version` that has AlterPartition, a leader first sends version 3 (A12). After
a request without a response, the leader asks the controller for its versions, because Kafka closes
the connection on an unknown version. Once the controller's versions are known, the leader sends the
highest version that both brokers support. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicId, TopicPartition
from tidelog.replication.isr import IsrChange
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.registry import ALTER_PARTITION, API

#: The first version whose requests give topic ids; earlier versions give topic names (KIP-841).
FIRST_VERSION_WITH_TOPIC_IDS: Final = 2
#: The first version whose requests give the broker epoch of each member (KIP-903).
FIRST_VERSION_WITH_EPOCHS: Final = 3
#: The version that leaders send at every level of `inter.broker.protocol.version` that has
#: AlterPartition. Below level 2.8, Kafka's leaders give topic names
#: (MetadataVersion.isTopicIdsSupported). tidelog's leaders always give topic ids, because every
#: topic has an id (V23).
HIGHEST_VERSION: Final = API[ALTER_PARTITION].max_version

#: A topic as a request identifies it: by id, or by name.
TopicKey = TopicId | str


class RequestedChange(NamedTuple):
    """One ISR change in an AlterPartition request."""

    topic_id: TopicId
    topic_partition: TopicPartition
    change: IsrChange
    #: The number of in-sync replicas that the leader currently needs to commit records (V60, E1).
    minimum: int


class ControllerVersions:
    """The versions of AlterPartition that controllers serve, as far as this leader knows."""

    def __init__(self, highest: int) -> None:
        self._highest = highest
        #: The controller (epoch, broker id) that left a request without a response.
        self._doubted: tuple[int, int] | None = None
        #: The controller that last responded, and the version range of AlterPartition that it
        #: reported; the range is None if the controller was not asked for its versions.
        self._known: tuple[int, int] | None = None
        self._served: tuple[int, int] | None = None

    def responded(self, controller: tuple[int, int]) -> None:
        """Note that the controller responded, and so serves the version of the request."""
        if self._known != controller:
            self._known, self._served = controller, None

    def unanswered(self, controller: tuple[int, int]) -> None:
        """Note a request without a response.

        If the controller has never responded, it may not support the version of the request.
        """
        if self._known != controller:
            self._doubted = controller

    def must_ask(self, controller: tuple[int, int]) -> bool:
        """Return whether to ask the controller for its versions before the next request."""
        return self._doubted == controller and self._known != controller

    def learn(self, controller: tuple[int, int], response: ApiVersionsResponse) -> None:
        """Note the controller's version range of AlterPartition; (0, -1) if there is none."""
        ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self._known, self._served = controller, ranges.get(ALTER_PARTITION, (0, -1))

    def version(self, controller: tuple[int, int]) -> int:
        """Return the version to send; raise UNSUPPORTED_VERSION without a common version."""
        if self._known != controller or self._served is None:
            return self._highest
        low, high = self._served
        best = min(self._highest, high)
        if best < max(low, API[ALTER_PARTITION].min_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"controller {controller[1]} serves versions {low} to {high} of AlterPartition; "
                f"this leader sends 0 to {self._highest}",
            )
        return best


def topic_key(version: int, topic_id: TopicId, topic: str) -> TopicKey:
    """Return the topic id or the topic name, by which requests of this version identify a topic."""
    return topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic


def make(
    version: int,
    broker_id: int,
    broker_epoch: int,
    changes: Mapping[tuple[TopicKey, int], RequestedChange],
) -> AlterPartitionRequest:
    """Return the request for `changes`, keyed by topic and partition."""
    topics: dict[TopicKey, RequestTopicData] = {}
    for (key, number), requested in changes.items():
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = RequestTopicData(
                topic_name=requested.topic_partition.topic, topic_id=requested.topic_id
            )
        topic.partitions.append(_partition(version, number, requested))
    return AlterPartitionRequest(broker_id, broker_epoch, list(topics.values()), may_hold=True)


def _partition(version: int, number: int, requested: RequestedChange) -> RequestPartitionData:
    change = requested.change
    data = RequestPartitionData(
        partition_index=number,
        leader_epoch=change.leader_epoch,
        leader_recovery_state=change.leader_recovery_state,
        partition_epoch=change.partition_epoch,
        shrunk=[shrink.replica_id for shrink in change.shrinks],
        causes=[shrink.cause for shrink in change.shrinks],
        minimum=requested.minimum,
    )
    if version >= FIRST_VERSION_WITH_EPOCHS:
        data.new_isr_with_epochs = _with_epochs(zip(change.isr, change.isr_epochs, strict=True))
    else:
        data.new_isr = change.isr
    return data


def _with_epochs(members: Iterable[tuple[int, int]]) -> list[BrokerState]:
    return [BrokerState(member, epoch) for member, epoch in members]
