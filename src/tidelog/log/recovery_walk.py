"""The check of the order of batches during recovery; the log ends at the first batch out of order.

The scan (`scan`) verifies checksums. No checksum covers base offsets and leader epochs, so the walk
in this module compares neighboring batches: offsets and epochs must never fall. This module runs
inside a file operation, like `recovery`.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import StorageError
from tidelog.log.scan import Scan
from tidelog.log.segment import Segment
from tidelog.records.batch import BatchView


class DamagedLog(StorageError):
    """The error for damage of flushed records; recovery does not change the damaged file."""

    def __init__(self, path: str, position: int, offset: int, reason: str, at_ms: int) -> None:
        root = path.rpartition("/")[0].rpartition("/")[0]
        super().__init__(
            root,
            "recovery",
            path,
            errno.EBADMSG,
            at_ms,
            f"damaged at byte {position}, offset {offset}, where records had been flushed: "
            f"{reason}. Give the file back as it was, or, where other in-sync replicas have the "
            "partition, move its directory away",
        )


class DoubtfulBatch(Exception):
    """A batch whose offset or leader epoch contradicts both neighbors, although the neighbors fit
    each other.

    `position` is the start of the batch, `offset` the log end before the batch, and `problem` says
    how the batch contradicts its neighbors.
    """

    def __init__(self, position: int, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.offset = offset
        self.problem = problem


class SegmentEnd(NamedTuple):
    """The end of a segment's valid batches."""

    #: Offset after the last valid batch.
    offset: int
    #: Why the valid batches end before the end of the file; None if they end with the file.
    problem: str | None
    #: Whether the log may go on with the segments after this segment.
    goes_on: bool


@dataclass(slots=True)
class Walk:
    """What recovery knows while it checks the segments of one log, from the oldest on."""

    #: Offset below which all records were flushed.
    recovery_point: int
    clean: bool
    #: Whether gaps are valid because of compaction.
    compacted: bool
    index_interval_bytes: int
    now_ms: int
    #: The leader epochs of the log, to which the walk adds epochs that begin in a segment.
    epochs: LeaderEpochs

    def note_batches(
        self, segment: Segment, scan: Scan, segment_end: int | None, behind: str | None = None
    ) -> SegmentEnd:
        """Add each valid batch to the segment's state; return where and why the valid batches end.

        `behind` says why the batch after the scanned range is invalid, or is None. Raises
        DamagedLog for an invalid batch below the recovery point, and DoubtfulBatch for a batch that
        the next batch contradicts.
        """
        interval = self.index_interval_bytes
        # If the scan resumes at the last index entry, its first batch is already in the index.
        resumed = scan.position > 0
        epochs = self.epochs
        end = segment.base_offset
        latest_epoch = -1
        stale = False
        #: `rise` and `gap` hold the position of the last batch, and the log end and leader epoch
        #: before this batch. `rise` is set if this batch raised the epoch; `gap` is set if offsets
        #: before this batch are missing.
        rise: tuple[int, int, int] | None = None
        gap: tuple[int, int, int] | None = None
        batches = iter(scan)
        for position, batch in batches:
            epoch = batch.partition_leader_epoch
            if resumed:
                end = batch.base_offset
            first = end == segment.base_offset
            problem = self._out_of_order(batch, end, first, latest_epoch)
            if problem is not None:
                jump = gap if batch.base_offset < end else rise
                if jump is not None and batch.base_offset >= jump[1] and epoch >= jump[2]:
                    after = next(batches, None) if jump is rise else None
                    if after is None or after[1].partition_leader_epoch < latest_epoch:
                        raise DoubtfulBatch(jump[0], jump[1], problem)
                scan.problem = problem
                break
            if segment_end is not None and batch.base_offset >= segment_end:
                scan.problem = f"the next segment begins at {segment_end}"
                stale = True
                break
            rise = gap = None
            if epoch > latest_epoch or batch.base_offset > end:
                if batch.last_offset >= self.recovery_point and not resumed:
                    before = (position, end, max(latest_epoch, epochs.latest_epoch))
                    rise = before if epoch > latest_epoch else None
                    gap = before if batch.base_offset > end else None
                latest_epoch = max(latest_epoch, epoch)
            if resumed:
                resumed = False
                segment.size_bytes += batch.size_bytes
                segment.bytes_since_index = batch.size_bytes
                if batch.max_timestamp > segment.max_timestamp_ms:
                    segment.max_timestamp_ms = batch.max_timestamp
                    segment.offset_of_max_timestamp = batch.last_offset
            else:
                segment.note_batch(
                    batch.last_offset, batch.size_bytes, batch.max_timestamp, interval
                )
            if epoch > epochs.latest_epoch:
                # If compaction removed an epoch's first records, the epoch begins where the
                # previous batch ends.
                epochs.assign(epoch, min(batch.base_offset, end))
            end = batch.next_offset
        scan.problem = scan.problem or behind
        if scan.problem is not None and end < self.recovery_point and not stale:
            raise DamagedLog(segment.file.path, segment.size_bytes, end, scan.problem, self.now_ms)
        return SegmentEnd(end, scan.problem, stale or scan.problem is None)

    def _out_of_order(
        self, batch: BatchView, end: int, first: bool, latest_epoch: int
    ) -> str | None:
        """Return the reason why a batch cannot come next at the log end `end`, or None if it can.

        The first batch of a segment may begin below the segment's base offset.
        """
        base, epoch = batch.base_offset, batch.partition_leader_epoch
        if base < end and not (first and batch.last_offset >= end):
            return f"offsets go back to {base} after {end - 1}"
        flushed = self.recovery_point
        if max(batch.last_offset, end) < flushed or (self.clean and not flushed):
            return None
        if base > end and not self.compacted:
            return f"offsets {end}..{base - 1} are missing"
        if 0 <= epoch < latest_epoch:
            return f"leader epochs go back to {epoch} after {latest_epoch}"
        return None
