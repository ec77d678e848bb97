"""The log directories of one broker, and its offline replicas (D1, D4).

A directory is good until its first device error, and failed from then on until the process ends.
The replicas of a directory that failed at run time are offline until this broker hosts them again.
`failed_directories` decides when the broker stops using a directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.broker.replicas.metrics import OFFLINE_REPLICAS
from tidelog.core.metrics import Metrics
from tidelog.core.types import TopicId, TopicPartition
from tidelog.replication.commands import OfflineReplica

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.core.errors import StorageError
    from tidelog.log.log_directory import LogDirectory


class BrokerLogDirs:
    """The log directories of one broker, good and failed, and its offline replicas. Only the event
    loop uses this class.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        #: The log directories that have not failed.
        self.good: list[LogDirectory] = []
        #: By path: the error with which a log directory failed (D1).
        self.failed: dict[str, StorageError] = {}
        #: Replicas in directories that failed at run time (D4).
        self.offline: dict[TopicPartition, OfflineReplica] = {}
        #: By partition, topic id of a new replica that the disk refused to create (D3) and that is
        #: still missing.
        self.refused_new: dict[TopicPartition, TopicId] = {}
        #: Sizes in bytes of the replicas that a directory held when it failed at run time, by path.
        self._held_by_failed: dict[str, dict[TopicPartition, int]] = {}

    def held_by_failed(self, path: str) -> Mapping[TopicPartition, int]:
        """Return the bytes of the replicas that a directory held when it failed at run time."""
        return self._held_by_failed.get(path, {})

    def give_up(self, path: str, lost: Sequence[Partition]) -> list[LogDirectory]:
        """Remove and return a failed directory, which held the replicas `lost`."""
        failing = [each for each in self.good if each.path == path]
        self.good = [each for each in self.good if each.path != path]
        held = self._held_by_failed.setdefault(path, {})
        held.update({each.topic_partition: each.log.size_bytes for each in lost})
        return failing

    def lost(self, partition: Partition) -> None:
        """Note that a replica is offline, because its directory has failed."""
        self.offline[partition.topic_partition] = OfflineReplica(
            partition.topic_id, partition.leader_epoch
        )

    def hosted(self, topic_partition: TopicPartition) -> None:
        """Note that a replica is in a good directory."""
        self.refused_new.pop(topic_partition, None)
        if self.offline.pop(topic_partition, None) is not None:
            self.count_offline()

    def count_offline(self) -> None:
        """Update the metric of replicas in directories that failed at run time (D10)."""
        self._metrics.put(OFFLINE_REPLICAS, len(self.offline))
