"""A client for the planning of queries that reads log directories instead of asking brokers.

The planning of a query asks its client for topics and offsets. With this client the options
`subscribe`, `assign`, `subscribePattern` and all forms of offsets and timestamps mean the same as
with brokers. The directories are listed once, so a query keeps its view of them. The offset for a
timestamp is the offset of the first record, below the readable end, with this timestamp or a later
one. A time index only helps to skip segments, so a lost index only costs time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from tidelog.client.cluster import ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.client.fetching import ListedOffset
from tidelog.core.errors import ErrorCode
from tidelog.core.types import READ_UNCOMMITTED, ZERO_TOPIC_ID, TopicPartition, topic_id_from_text
from tidelog.records.batch import BatchView
from tidelog.records.reader import read_columns
from tidelog.spark.segments.batch_scan import Rows
from tidelog.spark.segments.listing import ListedSegment, expand, list_directories
from tidelog.spark.segments.replica_choice import ChosenLog, choose_logs
from tidelog.spark.segments.resync import sound_batches

_EARLIEST: Final = -2
_LATEST: Final = -1
_TIME_ENTRY_BYTES: Final = 12
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__cluster_events")
_NONE: Final = ListedOffset(-1, -1, -1)


class SegmentClient:
    """A stand-in for a client of a cluster: it finds topics and offsets in log directories."""

    def __init__(self, patterns: tuple[str, ...], *, to_log_end: bool) -> None:
        """List the directories. Raises ConfigError, NoReplicaError, OSError."""
        directories = list_directories(expand(patterns, "option segments"))
        self.logs: dict[TopicPartition, ChosenLog] = choose_logs(directories, to_log_end=to_log_end)

    def topics(self) -> tuple[str, ...]:
        """Return the topics that have a replica in the directories, without internal topics."""
        return tuple(dict.fromkeys(tp.topic for tp in self.logs if tp.topic not in _INTERNAL))

    def metadata(self, topics: list[str] | None) -> ClusterMetadata:
        """Return topics with their partitions in the directories; an unknown topic has an error."""
        wanted = list(dict.fromkeys(tp.topic for tp in self.logs)) if topics is None else topics
        return ClusterMetadata({}, -1, None, {name: self._topic(name) for name in wanted})

    def _topic(self, name: str) -> TopicMetadata:
        partitions: dict[int, PartitionMetadata] = {}
        topic_id = ZERO_TOPIC_ID
        for tp, log in self.logs.items():
            if tp.topic == name:
                broker = -1 if log.replica.broker is None else log.replica.broker
                partitions[tp.partition] = PartitionMetadata(
                    tp.partition, broker, log.last_epoch, (broker,), (broker,)
                )
                if log.replica.topic_id is not None:
                    topic_id = topic_id_from_text(log.replica.topic_id)
        error = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return TopicMetadata(name, topic_id, partitions, name in _INTERNAL, error)

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]:
        """Return earliest or latest offsets, or offsets by timestamp. Raises OSError."""
        return {tp: self._listed(self.logs[tp], stamp) for tp, stamp in timestamps.items()}

    def _listed(self, log: ChosenLog, timestamp: int) -> ListedOffset:
        if timestamp == _EARLIEST:
            return ListedOffset(log.first, -1, -1)
        if timestamp == _LATEST:
            return ListedOffset(log.end, -1, log.last_epoch)
        for segment in log.replica.segments:
            if segment.base_offset >= log.end:
                break
            if _largest_timestamp(segment) < timestamp:
                continue
            found = _first_at(segment, timestamp, log)
            if found is not None:
                return found
        return _NONE


def _largest_timestamp(segment: ListedSegment) -> int:
    """Return a segment's largest timestamp by its time index; 2^63 - 1 if it is unknown."""
    try:
        with open(segment.companion("timeindex"), "rb") as file:
            size = os.fstat(file.fileno()).st_size // _TIME_ENTRY_BYTES
            for number in reversed(range(size)):
                entry = os.pread(file.fileno(), _TIME_ENTRY_BYTES, number * _TIME_ENTRY_BYTES)
                if any(entry):
                    # Until a segment is rolled, its time index lacks the last entry, and later
                    # timestamps may follow.
                    return int.from_bytes(entry[:8], "big", signed=True) if number else 2**63 - 1
    except OSError:
        pass  # without its index the segment is searched
    return 2**63 - 1


def _first_at(segment: ListedSegment, timestamp: int, log: ChosenLog) -> ListedOffset | None:
    for rows in sound_batches(segment.path, 0, segment.size, segment.base_offset):
        late = rows[(rows["max_timestamp"] >= timestamp) & (rows["last"] >= log.first)]
        for row in late:
            found = _first_in(segment, row, timestamp, log)
            if found is not None:
                return found
    return None


def _first_in(
    segment: ListedSegment, row: Rows, timestamp: int, log: ChosenLog
) -> ListedOffset | None:
    with open(segment.path, "rb") as file:
        data = os.pread(file.fileno(), int(row["size"]), int(row["position"]))
    columns = read_columns(BatchView(data, 0), with_headers=False)
    for offset, stamp in zip(columns.offsets, columns.timestamps_ms, strict=True):
        if stamp >= timestamp and log.first <= offset < log.end:
            return ListedOffset(offset, stamp, int(row["epoch"]))
    return None
