"""What a waiting fetch can still get: it waits for `min_bytes` only while its response can grow.

A read ends at the end of its segment, so the records of an older segment never become more. A fetch
that found some responds at once (V61). Records for which `max_bytes` had no room count as if they
had been read, since the response is as full as it can be. When every partition of a fetch is cut
off in this way, nothing more can come.

Bytes that come later are measured in the segment where the readable part of the log ends. Another
segment there, a removal, or a move to another directory calls for a new look. Knows offsets and
sizes of segments, but no record. Source: DelayedFetch.tryComplete, cases F and G.
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

#: Base offset for a log whose readable part does not end in the active segment.
NO_SEGMENT = -1


class FoundBytes:
    """The bytes that one look of a fetch found, and whether more can come."""

    __slots__ = ("_cut", "bytes", "is_final")

    def __init__(self) -> None:
        #: Bytes read, and those that had no room.
        self.bytes = 0
        #: Whether some records are of an older segment.
        self.is_final = False
        self._cut = 0

    def read(self, log: PartitionLog, slice_: LogSlice, end: int, room_bytes: int) -> None:
        """Note a read up to offset `end` for which there were `room_bytes`."""
        if slice_.is_cut:
            self._cut += 1
            self.bytes += max(room_bytes, slice_.size)
        else:
            self.bytes += slice_.size
        if slice_.size and is_older(log, slice_.base_offset, end):
            self.is_final = True

    def can_grow(self, partitions: int) -> bool:
        """Return whether the response of a fetch of so many partitions can become larger."""
        return not self.is_final and self._cut < partitions


def is_older(log: PartitionLog, base_offset: int, end: int) -> bool:
    """Return whether the segment at `base_offset` is older than the one where `end` lies."""
    bases = log.base_offsets
    return base_offset < bases[max(bisect_right(bases, end) - 1, 0)]


def note_seen(item: SessionPartition, partition: Partition) -> None:
    """Remember what the reader of a partition could have had by now.

    For a consumer only committed bytes count, not all appended ones.
    """
    log = partition.log
    end = item.session.end_offset(partition)
    item.seen_segment = _end_segment(log, end)
    item.seen_bytes = active_bytes_below(log, end)


def growth_bytes(item: SessionPartition, partition: Partition) -> int:
    """Return how many bytes may have come since they were noted, which they are now.

    -1 calls for a new look: the readable part of the log ends in another segment, or the log starts
    behind the reader.
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
