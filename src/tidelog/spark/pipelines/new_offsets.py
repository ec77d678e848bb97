"""The offsets of a run: from the end of the last run to the last stable offset.

A client asks the cluster for offsets; no record is read. The module needs only the end offsets of
the table into which the run writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import READ_COMMITTED, TopicPartition, topic_id_to_text
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.lake.state import Origin, PartitionRun
from tidelog.spark.planning import DataLossError, OffsetRange, OffsetsClient


@dataclass(frozen=True, slots=True)
class NewOffsets:
    """The offsets that one run of an ingest reads from the topic."""

    ranges: tuple[OffsetRange, ...]
    #: Empty partitions that the table does not know. The run commits the start offsets of these
    #: partitions, so that a later loss of their first records is found.
    unseen: tuple[PartitionRun, ...] = ()


def origin_of(client: OffsetsClient, topic: str) -> tuple[Origin, list[TopicPartition]]:
    """Return the topic's name, topic id and cluster id, and its partitions. Raises KafkaError."""
    metadata = client.metadata([topic])
    found = metadata.topics.get(topic)
    if found is None or found.error is not ErrorCode.NONE:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
        raise KafkaError(code, f"topic {topic!r} cannot be ingested")
    origin = Origin(topic, topic_id_to_text(found.topic_id), metadata.cluster_id or "")
    return origin, [TopicPartition(topic, number) for number in found.partitions]


def is_compacted(client: BlockingClient, topic: str) -> bool:
    """Return whether a topic's cleanup.policy has compaction. Raises KafkaError."""
    policies = client.describe_configs(ConfigResource(TOPIC, topic), ["cleanup.policy"])
    return any("compact" in (policy.value or "") for policy in policies)


def new_ranges(
    client: OffsetsClient, partitions: Sequence[TopicPartition], following: Mapping[int, int]
) -> NewOffsets:
    """Return each partition's new offsets, from its offset in `following` or the log start on.

    Raises DataLossError if the log no longer holds the next offset, or ends before it.
    """
    earliest = client.list_offsets(dict.fromkeys(partitions, EARLIEST))
    latest = client.list_offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
    ranges = []
    unseen = []
    for tp in partitions:
        first, end = earliest[tp].offset, latest[tp].offset
        start = following.get(tp.partition, first)
        if tp.partition not in following and start == end:
            unseen.append(PartitionRun(tp.partition, first, first, 0))
        if start < first:
            raise DataLossError(
                f"{tp} was ingested up to {start}, but its log now holds {first} to {end}: the"
                f" records from {start} to {first} were deleted before their ingest. Ingest to"
                " another table, which begins with what is left; run more often, or raise"
                " retention.ms"
            )
        if start > end:
            raise DataLossError(
                f"{tp} was ingested up to {start}, but its log now holds {first} to {end}: the"
                f" cluster has lost records from {end} on, as in an unclean leader election, and"
                " would give their offsets to others. Ingest to another table"
            )
        if start < end:
            ranges.append(OffsetRange(tp, start, end))
    return NewOffsets(tuple(ranges), tuple(unseen))


def limited(ranges: Sequence[OffsetRange], most: int) -> list[OffsetRange]:
    """Return ranges shortened to about `most` offsets in all, in proportion to their sizes.

    Every range keeps at least one offset, so that large ranges do not starve small ranges.
    """
    total = sum(each.size for each in ranges)
    if total <= most:
        return list(ranges)
    return [
        OffsetRange(each.tp, each.start, each.start + max(1, each.size * most // total))
        for each in ranges
    ]
