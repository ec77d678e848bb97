"""The replicas that this broker hosts, by name and by topic id, and its log directories.

The other parts of the broker find replicas here. `replica_set` adds the replicas, and knows the
configuration of their topics. If a partition has no replica here, its replica may be offline (D4),
the partition may have replicas on other brokers only, or it may not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.replicas.hosting.broker_log_dirs import BrokerLogDirs
from tidelog.broker.replicas.hosting.topic_meters import TopicMeters
from tidelog.core.errors import ErrorCode
from tidelog.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition, topic_id_to_text

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.context import PartitionContext
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.core.errors import StorageError
    from tidelog.log.log_directory import LogDirectory


class HostedLog(NamedTuple):
    """Topic id and latest leader epoch of one hosted log (E8)."""

    topic_id: TopicId
    latest_epoch: int


class HostedPartitions:
    """The replicas that one broker hosts, by name and by topic id. Only the event loop uses this
    class.
    """

    def __init__(self, context: PartitionContext) -> None:
        self._context = context
        self._services = context.services
        self.takeovers = context.takeovers
        #: The replication throttle, for leaders and followers (R15).
        self.throttles = context.throttles
        #: Metrics of the bytes that reassignments copy from and to this broker (R16).
        self.reassignments = context.reassignments
        #: The log directories, the offline replicas, and the replicas that a disk refused to
        #: create.
        self.log_dirs = BrokerLogDirs(context.services.metrics)
        #: Traffic by topic.
        self.topic_meters = TopicMeters(context.services.metrics)
        #: Commands run one at a time, in the order of their arrival.
        self.command_order = asyncio.Lock()
        self._partitions: dict[TopicPartition, Partition] = {}
        #: By topic id: topic name, and number of its partitions that have a replica here.
        self._topics: dict[TopicId, tuple[str, int]] = {}

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """The log directories that have not failed."""
        return self.log_dirs.good

    @property
    def failed(self) -> Mapping[str, StorageError]:
        """Why each failed log directory failed, by path (D1)."""
        return self.log_dirs.failed

    @property
    def offline(self) -> Collection[TopicPartition]:
        """Partitions whose replicas are in directories that failed at run time (D4)."""
        return self.log_dirs.offline

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the replica of a partition, None if there is none here."""
        return self._partitions.get(topic_partition)

    def log_epochs(self) -> dict[TopicPartition, HostedLog]:
        """Return topic id and last leader epoch of each hosted log."""
        return {
            partition.topic_partition: HostedLog(
                partition.log.topic_id, partition.log.epochs.latest_epoch
            )
            for partition in self.all()
        }

    def all(self) -> list[Partition]:
        """Return every replica, in the order in which the replicas were added."""
        return list(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def topics(self) -> dict[str, None]:
        """Return the topics that have a replica on this broker."""
        return {name: None for name, _ in self._topics.values()}

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic that has a replica on this broker."""
        entry = None if topic_id == ZERO_TOPIC_ID else self._topics.get(topic_id)
        return None if entry is None else entry[0]

    def published_topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic id, from published state or from a replica on this broker."""
        return self._services.view.topic_name(topic_id) or self.topic_name(topic_id)

    def missing_replica_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return the error for a partition without a replica on this broker.

        The error depends on whether the replica is in a failed log directory (D4), the partition
        has replicas on other brokers only, or the partition is unknown.
        """
        if topic_partition in self.log_dirs.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        view = self._services.view
        if not view.is_known or view.partition(topic_partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def by_topic_id(self, topic_id: TopicId, partition: int) -> Partition | None:
        """Return the replica of a partition that is given by topic id and number."""
        entry = self._topics.get(topic_id)
        if entry is None:
            return None
        found = self._partitions.get(TopicPartition(entry[0], partition))
        return found if found is not None and found.topic_id == topic_id else None

    def host(self, partition: Partition) -> None:
        """Start to host a replica."""
        self._partitions[partition.topic_partition] = partition
        self.log_dirs.hosted(partition.topic_partition)
        self.topic_meters.hosted(partition.topic_partition.topic)
        self._count_topic(partition, 1)

    def forget(self, partition: Partition) -> None:
        """Stop hosting a replica; the caller handles its log."""
        if self._partitions.get(partition.topic_partition) is not partition:
            return
        del self._partitions[partition.topic_partition]
        self.throttles.left(partition.topic_partition)
        self.reassignments.role_ended(partition.topic_partition)
        self._count_topic(partition, -1)
        if (
            partition.topic_id not in self._topics
            and partition.topic_partition.topic not in self.topics()
        ):
            # This was the last replica of the topic here, so the broker reads the topic's
            # configuration no more. The check of the name is for a recreated topic, which may
            # already have replicas here.
            self.throttles.topic_gone(partition.topic_partition.topic)
            self.topic_meters.gone(partition.topic_partition.topic)
        coordinators = self._context.coordinators.get(partition.topic_partition.topic)
        if coordinators is not None:
            coordinators.replica_gone(partition)

    def adopt_topic_id(self, partition: Partition, topic_id: TopicId) -> None:
        """Give a replica without a topic id the topic id from the controller's command.

        The log stores the topic id with a flush that begins now.
        """
        if partition.topic_id == ZERO_TOPIC_ID != topic_id:
            self._count_topic(partition, -1)
            partition.log.topic_id = topic_id
            partition.log.metadata_unsynced = True
            self._count_topic(partition, 1)
            self._services.tracer.mark("topic_id_adopted")
            self._services.tracer.event(
                "topic_id_adopted",
                partition=str(partition.topic_partition),
                topic_id=topic_id_to_text(topic_id),
            )
            # If the flush fails, either the log directory has failed or the next flush stores the
            # topic id.
            partition.log.flush()

    def _count_topic(self, partition: Partition, change: int) -> None:
        _, count = self._topics.pop(partition.topic_id, ("", 0))
        if count + change:
            name = partition.topic_partition.topic
            self._topics[partition.topic_id] = (name, count + change)
