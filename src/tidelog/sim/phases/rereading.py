"""Consumers that read every partition again, from its beginning to the end of the committed
records.

These reads find damage that no earlier read met (V68), and show that a log directory serves reads
while its disk is full (D14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidelog.sim.client_workload import ClientWorkload
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.workload.partition_consumers import SimPartitionConsumer


class Rereading(NamedTuple):
    """New consumers of all partitions that the workload consumes."""

    readers: list[SimPartitionConsumer]
    #: Whether a consumer still has records to read.
    has_more: Callable[[SimPartitionConsumer], bool]

    def is_behind(self) -> bool:
        """Return whether a consumer still has records to read."""
        return any(map(self.has_more, self.readers))

    def behind(self) -> dict[SimPartitionConsumer, int]:
        """Return the consumers that still have records to read, with their positions."""
        return {each: each.position for each in self.readers if self.has_more(each)}

    def crawls(self, before: Mapping[SimPartitionConsumer, int], count: int) -> bool:
        """Return whether a consumer that still has records to read has read fewer than `count`
        since `before`.
        """
        return any(
            each.position < position + count and self.has_more(each)
            for each, position in before.items()
        )


def begin(cluster: SimCluster, workload: ClientWorkload, *, is_growing: bool = False) -> Rereading:
    """Start a new consumer of each partition that the workload consumes.

    With `is_growing`, producers still write, so each consumer must read only the records that are
    committed now. Otherwise it must read all records that are committed at the time of a check.
    """
    client = workload.client()
    known = {consumer.partition: consumer.gaps for consumer in workload.consumers}
    readers = [workload.consume(client, name, None, gaps=gaps) for name, gaps in known.items()]

    def end_of(reader: SimPartitionConsumer) -> tuple[bytes, int] | None:
        """Return (topic id, end of the committed records) of a partition; None if it cannot be
        read.
        """
        topic = cluster.published.topics.get(reader.partition.topic)
        if topic is None:
            return None
        key = cluster.published.key(topic.topic_id, reader.partition.partition)
        if cluster.waits_for_operator(key):
            return None
        return topic.topic_id, len(cluster.replication.truth(key).committed)

    first_ends = {reader: end_of(reader) for reader in readers}

    def is_behind(reader: SimPartitionConsumer) -> bool:
        found = end_of(reader)
        if is_growing and found is not None:
            first = first_ends[reader]
            # If the topic was recreated since the consumer's start, there is nothing more to read.
            found = first if first is not None and first[0] == found[0] else None
        return found is not None and (reader.topic_id != found[0] or reader.position < found[1])

    return Rereading(readers, is_behind)
