"""One segment: a log file, its indexes in memory, and the rules for rolling it.

Appends go only to the last segment of a log, whose indexes are kept up to date in memory. Reads
load the indexes of older segments from their files; the indexes are dropped from memory when
`IndexCache` is full. Source: LogSegment, RollParams.
"""

from __future__ import annotations

import zlib

from tidelog.log import names
from tidelog.log.config import LogConfig
from tidelog.log.index import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex
from tidelog.log.open_files import OpenFile
from tidelog.records.batch import NO_TIMESTAMP

#: Number of index entries of sealed segments that a directory keeps in memory, 8 or 12 bytes each.
MAX_CACHED_INDEX_ENTRIES = 2_000_000


class Segment:
    """The state of one segment, which only its log changes."""

    __slots__ = (
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "file",
        "first_timestamp_ms",
        "index",
        "last_modified_ms",
        "max_timestamp_ms",
        "offset_of_max_timestamp",
        "sealed",
        "size_bytes",
        "time_index",
    )

    def __init__(self, directory: str, base_offset: int, created_ms: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = OpenFile(self.path(names.LOG))
        #: Size of all written batches.
        self.size_bytes = 0
        #: The offset index; None while it is only on disk.
        self.index: OffsetIndex | None = OffsetIndex(base_offset)
        self.time_index: TimeIndex | None = TimeIndex(base_offset)
        self.max_timestamp_ms = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        #: Largest timestamp in the first append; -1 before this append, or if it has no timestamp.
        self.first_timestamp_ms = NO_TIMESTAMP
        #: Wall-clock time when this segment was created; after a restart, the time of the last
        #: write to its file.
        self.created_ms = created_ms
        #: Wall-clock time of the log file's last write or truncation.
        self.last_modified_ms = created_ms
        self.bytes_since_index = 0
        #: Whether the segment has rolled and its log and index files are durable.
        self.sealed = False

    def path(self, suffix: str) -> str:
        """Return the path of the segment's file with a suffix."""
        return f"{self.directory}/{names.offset_name(self.base_offset, suffix)}"

    def renamed(self, directory: str) -> None:
        """Note the new path of the directory that contains the segment; an open file stays open."""
        self.directory = directory
        self.file.renamed(self.path(names.LOG))

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of the records; without timestamps, the time of the last write.

        Retention and `min.compaction.lag.ms` measure a segment's age by its largest timestamp.
        Source: LogSegment.largestTimestamp.
        """
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.last_modified_ms

    def note_batch(
        self, last_offset: int, size_bytes: int, max_timestamp_ms: int, interval_bytes: int
    ) -> None:
        """Note a batch that was written at the end of the segment."""
        position = self.size_bytes
        if position == 0:
            self.first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.offset_of_max_timestamp = last_offset
        if self.bytes_since_index > interval_bytes:
            index, time_index = self.index, self.time_index
            if index is None or time_index is None:
                raise AssertionError(f"the index of {self.file.path} is not in memory")
            index.append(last_offset, position)
            time_index.append(self.max_timestamp_ms, self.offset_of_max_timestamp)
            self.bytes_since_index = 0
        self.bytes_since_index += size_bytes
        self.size_bytes = position + size_bytes

    def must_roll(
        self,
        config: LogConfig,
        planned_bytes: int,
        size_bytes: int,
        last_offset: int,
        max_timestamp_ms: int,
        now_ms: int,
    ) -> bool:
        """Return whether an append of `size_bytes` must go to a new segment.

        `planned_bytes` is the size of the segment including its planned appends.
        """
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if planned_bytes == 0:
            return False
        if planned_bytes + size_bytes > config.segment_bytes:
            return True
        index, time_index = self.index, self.time_index
        if index is not None and len(index) >= config.segment_index_bytes // 8:
            return True
        if time_index is not None and len(time_index) >= config.segment_index_bytes // 12 - 1:
            return True
        age_ms = config.roll_ms
        if config.segment_jitter_ms > 0:
            age_ms -= self._jitter_ms(min(config.segment_jitter_ms, config.segment_ms))
        return self.waited_ms(max_timestamp_ms, now_ms) > age_ms

    def _jitter_ms(self, below_ms: int) -> int:
        """Return how long before its age limit this segment rolls: less than `below_ms`.

        Because of this jitter, segments that began at the same time roll at different times. The
        jitter depends only on the file's path, so a restart does not change it.
        """
        return zlib.crc32(self.file.path.encode()) % below_ms

    def waited_ms(self, max_timestamp_ms: int, now_ms: int) -> int:
        """Return the segment's age, which decides whether it rolls by time.

        The age is the time from the first append's timestamp to `max_timestamp_ms`, the current
        append's. If the first append has no timestamp, the age is the wall-clock time since the
        segment began. If only the current append has no timestamp, the segment does not roll by
        time. Source: LogSegment.timeWaitedForRoll.
        """
        if self.first_timestamp_ms >= 0:
            return max_timestamp_ms - self.first_timestamp_ms
        return now_ms - self.created_ms

    def finish_time_index(self) -> None:
        """Add the segment's largest timestamp as the last entry of the time index."""
        if self.time_index is not None and self.max_timestamp_ms >= 0:
            self.time_index.append(self.max_timestamp_ms, self.offset_of_max_timestamp)


class BatchStarts:
    """Positions of the newest batches of the active segment.

    Most reads at the log end begin and end at positions in this list, so they need no search. The
    list is bounded; reads find older batches by the index.
    """

    __slots__ = ("_offsets", "_positions")

    _LIMIT = 1024

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._positions: list[int] = []

    def add(self, offset: int, position: int) -> None:
        """Note that the newest batch, with this base offset, starts at `position`."""
        self._offsets.append(offset)
        self._positions.append(position)
        if len(self._offsets) > self._LIMIT:
            del self._offsets[: self._LIMIT // 2], self._positions[: self._LIMIT // 2]

    def position_of(self, offset: int) -> int:
        """Return the position of the batch with this base offset, or -1 if it is not remembered."""
        offsets = self._offsets
        low, high = 0, len(offsets)
        # Look at the newest batches first, because most reads ask for them.
        if high and offsets[-1] <= offset:
            return self._positions[-1] if offsets[-1] == offset else -1
        while low < high:
            middle = (low + high) // 2
            if offsets[middle] < offset:
                low = middle + 1
            else:
                high = middle
        if low < len(offsets) and offsets[low] == offset:
            return self._positions[low]
        return -1

    def clear(self) -> None:
        """Forget all remembered positions, after a roll or a truncation."""
        self._offsets.clear()
        self._positions.clear()


class IndexCache:
    """An LRU of the sealed segments whose indexes are in memory."""

    __slots__ = ("_entries", "_limit", "_segments")

    def __init__(self, limit: int = MAX_CACHED_INDEX_ENTRIES) -> None:
        self._limit = limit
        self._entries = 0
        self._segments: dict[Segment, int] = {}

    def used(self, segment: Segment) -> None:
        """Note that a sealed segment's index is in memory and was just used."""
        if segment.index is None or segment.time_index is None:
            return
        self._entries -= self._segments.pop(segment, 0)
        size = len(segment.index) + len(segment.time_index)
        self._segments[segment] = size
        self._entries += size
        while self._entries > self._limit and len(self._segments) > 1:
            oldest = next(iter(self._segments))
            self._entries -= self._segments.pop(oldest)
            oldest.index = oldest.time_index = None

    def forget(self, segment: Segment) -> None:
        """Remove a segment from the LRU, because it is active again or was removed from the log."""
        self._entries -= self._segments.pop(segment, 0)
