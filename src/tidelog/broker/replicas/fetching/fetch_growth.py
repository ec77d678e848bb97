"""Whether the response of a waiting fetch can still grow towards its `min_bytes`.

A read ends at the end of its segment. If a fetch found records in a segment that is no longer
active, no later record can extend that read, so the fetch responds at once (V61). Records that did
not fit into `max_bytes` count towards `min_bytes`, because the response is as full as possible. If
`max_bytes` limited the read of every partition of a fetch, the response cannot grow.

While a fetch waits, the bytes that arrive are measured in the segment in which the readable part of
the log ends. The fetch must examine the partition again if the readable part ends in another
segment than before, if records are deleted, or if the replica moves to another directory. This
module uses offsets and sizes of segments only, and reads no records. Kafka's
DelayedFetch.tryComplete also ends a wait when the log has a new segment (case F) or enough bytes
have arrived (case G).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tidelog.broker.replicas.hosting.log_bytes import active_bytes_below

if TYPE_CHECKING:
    from tidelog.broker.replicas.fetching.fetch_sessions import SessionPartition
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.log.partition_log import PartitionLog
    from tidelog.log.segment_reads import LogSlice

#: The value in place of a segment's base offset if the readable records do not end in the active
#: segment.
NO_SEGMENT = -1


class FoundBytes:
    """The bytes that a fetch found in one examination, and whether more can arrive."""

    __slots__ = ("_cut", "bytes", "is_final")

    def __init__(self) -> None:
        #: Bytes that the fetch found: bytes in the response, and bytes that did not fit into it.
        self.bytes = 0
        #: Whether some of the records come from a segment that is no longer active, so the fetch
        #: must respond.
        self.is_final = False
        self._cut = 0

    def read(self, log: PartitionLog, slice_: LogSlice, end: int, room_bytes: int) -> None:
        """Note a read up to offset `end`, for which the response had room for `room_bytes`."""
        if slice_.is_cut:
            self._cut += 1
            self.bytes += max(room_bytes, slice_.size)
        else:
            self.bytes += slice_.size
        if slice_.size and is_older(log, slice_.base_offset, end):
            self.is_final = True

    def can_grow(self, partitions: int) -> bool:
        """Return whether more records could still enter a response with this many partitions."""
        return not self.is_final and self._cut < partitions


def is_older(log: PartitionLog, base_offset: int, end: int) -> bool:
    """Return whether the segment at `base_offset` is older than the segment of offset `end`."""
    bases = log.base_offsets
    return base_offset < bases[max(bisect_right(bases, end) - 1, 0)]


def note_seen(item: SessionPartition, partition: Partition) -> None:
    """Remember how much of a partition its reader could have read by now.

    For a consumer, only committed bytes count as readable.
    """
    log = partition.log
    end = item.session.end_offset(partition)
    item.seen_segment = _end_segment(log, end)
    item.seen_bytes = active_bytes_below(log, end)


def growth_bytes(item: SessionPartition, partition: Partition) -> int:
    """Return how many bytes may have arrived since the last call; update `item.seen_bytes`.

    Returns -1 if the fetch must look again: the readable part ends in another segment, or the log
    starts after the reader's offset.
    """
    log = partition.log
    segment = _end_segment(log, item.session.end_offset(partition))
    if segment != item.seen_segment or segment == NO_SEGMENT:
        return -1
    if item.fetch_offset < log.log_start_offset:
        return -1
    size = log.active_segment.size_bytes
    growth, item.seen_bytes = size - item.seen_bytes, size
    return growth


def _end_segment(log: PartitionLog, end: int) -> int:
    active = log.base_offsets[-1]
    return active if end >= active else NO_SEGMENT
