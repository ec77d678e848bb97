"""The known replicas of a failed log directory.

A broker reports the replicas of a directory that failed while the broker ran. The broker knows no
replica of a directory that had failed before the broker's start; the controller then counts
replicas of that broker as offline. If only one directory had failed before the broker's start, the
broker's offline replicas belong to this directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client.cluster import ClusterMetadata
from tidelog.client.upkeep import LogDirDescription
from tidelog.core.types import TopicPartition


def last_known(
    directory: LogDirDescription,
    all_directories: Iterable[LogDirDescription],
    metadata: ClusterMetadata | None,
) -> Mapping[TopicPartition, int | None]:
    """Return the replicas of a failed directory with their sizes, None for an unknown size.

    The result is empty for a directory that has not failed, and if no replica is known.
    """
    if not directory.error:
        return {}
    if directory.last_known or metadata is None:
        return {each.tp: each.size_bytes for each in directory.last_known}
    of_broker = [each for each in all_directories if each.broker_id == directory.broker_id]
    if sum(bool(each.error) and not each.last_known for each in of_broker) > 1:
        return {}
    elsewhere = {replica.tp for each in of_broker for replica in (*each.replicas, *each.last_known)}
    return {
        tp: None
        for tp, partition in metadata.all_partitions()
        if directory.broker_id in partition.offline and tp not in elsewhere
    }
